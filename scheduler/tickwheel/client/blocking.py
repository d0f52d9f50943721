"""The blocking client. It runs plans; the plans are built by the backend."""

from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from tickwheel.client import connect
from tickwheel.client.backend import Backend
from tickwheel.client.blocking_queue import Queue
from tickwheel.client.local_processes import LocalProcesses
from tickwheel.client.settings import ClientSettings
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.namespace_options import NamespaceOptions
from tickwheel.plan import Plan

T = TypeVar("T")


class Tickwheel:
    """A delay scheduler and priority queue.

    ``url``: the server. None starts or joins an embedded server on ``data_dir`` (default: the platform's folder for
    user data). ``redis://``, ``rediss://`` and ``unix://`` name a running server,
    ``redis+cluster://host:port,host:port`` and ``rediss+cluster://`` a Redis Cluster, ``grpc://`` and ``grpcs://`` the
    gRPC service.
    ``durability``: ``memory``, ``fsync`` (default of the embedded server) or ``replica:N``.
    ``drive``: also run the event process, as a child process. The default is True for an embedded server only.
    ``existing``: raise NamespaceNotFound if the namespace does not exist, instead of creating it.
    ``timeout``: how long a call is retried, up to 30 s (default: 30 s).
    ``clock``: for tests that control the time.

    The following are fixed when the namespace is created. Another value later raises InvalidArgument; only
    ``auto_create`` is ignored then.

    ``shards``: the number of shards (default: 1).
    ``history``: ``capped`` (default), ``relay`` or ``off``.
    ``auto_create``: create a queue when its first message is enqueued (default: True).
    ``clock_guard``: how far the server's clock may step forward before promotion is held (default: 1 s).
    ``outbox_limit``: bytes of events that a shard keeps for the relay, rounded down to KiB (default: 256 MiB).
    ``outbox_full``: at that limit, ``block`` (default) refuses new messages, and ``drop`` drops events.

    A client is safe to share between threads. A forked process must open its own client. Close the client, or use it in
    a ``with`` statement; calls in flight, also waiting ones, then end with an error.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str = "tw",
        shards: int | None = None,
        data_dir: str | Path | None = None,
        durability: str | None = None,
        drive: bool | None = None,
        history: str | None = None,
        auto_create: bool | None = None,
        clock_guard: timedelta | None = None,
        outbox_limit: int | None = None,
        outbox_full: str | None = None,
        existing: bool = False,
        timeout: timedelta | None = None,
        clock: str = "_clock",
    ) -> None:
        self._client_settings = ClientSettings.validate(url, namespace, data_dir, durability, drive, timeout)
        self._processes = LocalProcesses(self._client_settings)
        self._context = NamespaceContext(self._client_settings.namespace, clock=clock)
        self._untraced_backend = connect.select_backend(self._client_settings, self._context)
        server_url = self._processes.open()
        try:
            self._io = connect.blocking_executor(self._client_settings, self._context, self._processes, server_url)
            options = NamespaceOptions.parse(
                shards, history, auto_create, clock_guard, outbox_limit, outbox_full, existing
            )
            self._run(self._backend.open(options))
            self._processes.start_driving()
        except BaseException:
            self._processes.close()
            raise

    def queue(self, name: str) -> Queue:
        """Return the queue ``name``. Sends nothing. Raises InvalidArgument."""
        return Queue(self, name)

    def create_queue(self, name: str, *, update: bool = False, **config: Any) -> Queue:
        """Create a queue, or check that it has this configuration. With ``update``, change the named settings.

        ``exclusive_key``: a metadata key; at most one message of each of its values is Running.
        ``indexed``: the metadata keys that ``where`` may name (default: all).
        ``lease`` (30 s), ``max_attempts`` (5), ``backoff`` (1 s), ``backoff_max`` (10 min), ``payload_limit`` (32 KiB).
        ``retention``: how long completed and cancelled messages are kept (10 min).
        ``errored_retention``: how long errored messages are kept (7 days).
        ``forecast``: count the messages that fall due in each minute (False).
        ``sink``: deliver due messages to ``kafka://topic`` instead of to workers; ``""`` removes the sink.
        Raises QueueConfigConflict, InvalidArgument.
        """
        queue = Queue(self, name)
        self._run(self._backend.create(queue.name, config, update=update))
        return queue

    def queues(self) -> list[Queue]:
        """Return all queues of the namespace, sorted by name."""
        return [Queue(self, name) for name in self._run(self._backend.queues())]

    def settings(self) -> dict[str, str]:
        """Return all settings of the namespace, by name: short texts that programs read while they run.

        Settings are not for secrets.
        """
        return self._run(self._backend.settings())

    def setting(self, name: str) -> str | None:
        """Return one setting, read from the metadata shard, or None if it is not set."""
        return self._run(self._backend.setting(name))

    def set_setting(self, name: str, value: str | None) -> None:
        """Set a setting of up to 1 KiB; None removes the setting. Raises InvalidArgument."""
        self._run(self._backend.set_setting(name, value))

    def close(self) -> None:
        """Close the connections; messages stay on the server. Closing a closed client does nothing."""
        try:
            self._io.close()
        finally:
            self._processes.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"<Tickwheel {self._client_settings.display_url} namespace={self._context.namespace!r}"
            f" shards={self._context.shards}>"
        )

    @property
    def _backend(self) -> Backend:
        return connect.with_tracing(self._untraced_backend)

    def _run(self, plan: Plan[T]) -> T:
        result: T = self._io.run(plan)
        return result
