"""The blocking client. The backend builds the plans, and the client runs them."""

from pathlib import Path
from types import TracebackType
from typing import Self

from tickwheel.client import connect
from tickwheel.client.blocking_namespace import NamespaceMethods
from tickwheel.client.settings import ClientSettings
from tickwheel.model.validation import Duration
from tickwheel.operations.namespace_options import NamespaceOptions


class Tickwheel(NamespaceMethods):
    """A delay scheduler and priority queue.

    ``url``: the server. None starts or joins an embedded server on ``data_dir`` (default: the platform's folder for
    user data). ``redis://``, ``rediss://`` and ``unix://`` name a running server,
    ``redis+cluster://host:port,host:port`` and ``rediss+cluster://`` a Redis Cluster, ``grpc://`` and ``grpcs://`` the
    gRPC service.
    ``durability``: ``memory``, ``fsync`` (default of the embedded server) or ``replica:N``.
    ``drive``: also run an event process, as a child process. The default is True only for an embedded server. With the
    URL of one server, the child drives only while no `tickwheel events` does, and only a namespace that it can serve
    whole: otherwise the client logs a warning with the reason (docs/operations.md).
    ``existing``: raise NamespaceNotFound if the namespace does not exist, instead of creating it.
    ``timeout``: how long a call is retried, up to 30 s (default: 30 s). Each method has an argument ``timeout`` that
    replaces it for one call. A duration is a timedelta or a number of seconds.
    ``open_timeout``: how long the constructor tries to reach the server (default: ``timeout``).
    ``clock``: only for tests. ``_clock_test`` takes the time from the test instead of from the server.

    The following options are fixed when the namespace is created. If the namespace exists with another value,
    InvalidArgument is raised, except that another value of ``auto_create`` is ignored.

    ``shards``: the number of shards (default: 1).
    ``history``: ``capped`` (default), ``relay`` or ``off``.
    ``auto_create``: create a queue when its first message is enqueued (default: True).
    ``clock_guard``: promotion stops if the server's clock jumps ahead by more than this (default: 1 s).
    ``outbox_limit``: bytes of events that a shard keeps for the relay, rounded down to KiB (default: 256 MiB).
    ``outbox_full``: at this limit, ``block`` (default) rejects new messages, and ``drop`` discards new events.

    A client is safe to share between threads. A forked process must open its own client. Close the client after use, or
    use it in a ``with`` statement. If a client is closed, all its calls in flight end with an error, also those that
    wait for messages.
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
        clock_guard: Duration | None = None,
        outbox_limit: int | None = None,
        outbox_full: str | None = None,
        existing: bool = False,
        timeout: Duration | None = None,
        open_timeout: Duration | None = None,
        clock: str = "_clock",
    ) -> None:
        options = NamespaceOptions.parse(shards, history, auto_create, clock_guard, outbox_limit, outbox_full, existing)
        super().__init__(ClientSettings.validate(url, namespace, data_dir, durability, drive, timeout), clock)
        server_url = self._processes.open()
        try:
            self._io = connect.blocking_executor(self._client_settings, self._context, self._processes, server_url)
            self._run(self._backend.open(options), timeout=open_timeout)
            self._processes.start_driving()
        except BaseException:
            self._processes.close()
            raise

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
