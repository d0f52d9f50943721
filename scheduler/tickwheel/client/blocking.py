"""The blocking client: `Tickwheel`, `Queue`, `Message`. Every decision is in the core; here plans are run."""

from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from tickwheel.client import connect
from tickwheel.client.backend import Backend
from tickwheel.client.blocking_queue import Message, Queue
from tickwheel.client.local_processes import LocalProcesses
from tickwheel.client.settings import ClientSettings
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.namespace_options import NamespaceOptions
from tickwheel.plan import Plan

T = TypeVar("T")


class Tickwheel:
    """A delay scheduler and priority queue.

    ``url`` says where: none is an embedded server on ``data_dir`` (default: the platform's folder for user data),
    ``redis://``, ``rediss://`` and ``unix://`` a server that is there, ``redis+cluster://host:port,host:port`` and
    ``rediss+cluster://`` a Redis Cluster. ``shards`` is fixed when the namespace is first used (default 1) and checked
    after. ``durability`` is ``memory``, ``fsync`` (embedded default) or ``replica:N``. ``drive`` says whether this
    program also runs the event process, in a child: by default where embedded. Fixed with the namespace are
    ``history`` (``capped``, ``relay``, ``off``), ``auto_create``, ``clock_guard`` (by how much the server's clock may
    step forward before promotion is held: 1 s), ``outbox_limit`` (bytes of events a shard keeps for the relay: 256 MiB;
    what is beyond whole KiB is left off) and ``outbox_full``: at the limit ``block`` refuses new messages, ``drop``
    drops events. ``existing`` makes no namespace: NamespaceNotFound where it is not there. ``timeout`` is how long a
    call goes on trying, by default 30 s. ``clock`` is for tests that turn the time.

    Safe to share between threads. A process that is forked opens a client of its own. Close it, or use it in a
    ``with`` statement: calls under way, waiting ones too, end with an error then.
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
        """A queue by name; nothing is sent."""
        return Queue(self, name)

    def create_queue(self, name: str, *, update: bool = False, **config: Any) -> Queue:
        """Create a queue, or check that it has this configuration; with ``update`` change those that are named.

        ``exclusive_key``: the metadata key of which at most one message per value is Running. ``indexed``: the metadata
        keys that ``where`` may name (default: all). ``lease`` (30 s), ``max_attempts`` (5), ``backoff`` (1 s) and
        ``backoff_max`` (10 min), ``retention`` of completed and cancelled messages (10 min) and ``errored_retention``
        (7 days), ``payload_limit`` (32 KiB), ``forecast`` (False). ``sink``: where due messages are handed to instead
        of to workers, ``kafka://topic``; ``""`` gives them back. Raises QueueConfigConflict, InvalidArgument.
        """
        queue = Queue(self, name)
        self._run(self._backend.create(queue.name, config, update=update))
        return queue

    def queues(self) -> list[Queue]:
        """All queues of the namespace, by name."""
        return [Queue(self, name) for name in self._run(self._backend.queues())]

    def settings(self) -> dict[str, str]:
        """All settings of the namespace, by name: small texts that programs read while they run; no secrets."""
        return self._run(self._backend.settings())

    def setting(self, name: str) -> str | None:
        """One setting, read from its home; None where it is not set."""
        return self._run(self._backend.setting(name))

    def set_setting(self, name: str, value: str | None) -> None:
        """Set it, up to 1 KiB, or with None remove it. Raises InvalidArgument."""
        self._run(self._backend.set_setting(name, value))

    def close(self) -> None:
        """Let go of the server; messages stay. May be called twice."""
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

    def _attach_client(self, messages: list[Message]) -> list[Message]:
        for message in messages:
            message._tickwheel = self
        return messages
