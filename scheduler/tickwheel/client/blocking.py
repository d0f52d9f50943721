"""The blocking client. It runs plans; the plans are built by the backend."""

from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from tickwheel.client import connect
from tickwheel.client.blocking_namespace import NamespaceMethods
from tickwheel.client.settings import ClientSettings
from tickwheel.operations.namespace_options import NamespaceOptions


class Tickwheel(NamespaceMethods):
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
        super().__init__(ClientSettings.validate(url, namespace, data_dir, durability, drive, timeout), clock)
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
