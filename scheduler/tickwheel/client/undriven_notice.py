"""Logs a warning if a client enqueues messages for later, and no event process drives the namespace.

The check runs in a thread, and on connections of its own, so it delays no call, and works for both clients.
"""

import threading
from collections.abc import Iterable
from contextlib import closing, suppress
from logging import getLogger
from time import monotonic
from typing import Final

from tickwheel.client import driver_watch
from tickwheel.client.settings import ClientSettings
from tickwheel.errors import TickwheelError
from tickwheel.model.message import EnqueueResult
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.namespace import read_namespace
from tickwheel.redis.blocking_executor import RedisExecutor
from tickwheel.redis.pools import ConnectionPools

# A client begins at most one check in this time, in seconds.
PAUSE_S: Final = 60.0

_log = getLogger("tickwheel")


class UndrivenNotice:
    """The warning of one client of Redis. Thread-safe.

    The embedded server of a data directory is driven while programs use it, and a service has event processes of its
    own, so they are not checked.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._is_needed = settings.url is not None and not settings.is_service
        self._next_at = 0.0
        self._closed = threading.Event()

    def on_enqueued(self, results: Iterable[EnqueueResult]) -> None:
        """Begin a check if one of the messages is not due yet, unless a check began less than PAUSE_S ago."""
        if not self._is_needed or monotonic() < self._next_at:
            return
        if any(result.state == "invisible" for result in results):
            self._next_at = monotonic() + PAUSE_S
            # The host may have no resources for another thread.
            with suppress(RuntimeError):
                self._closed = closed = threading.Event()
                threading.Thread(target=self._check, args=(closed,), name="tickwheel-undriven", daemon=True).start()

    def close(self) -> None:
        """End the check that is in progress."""
        self._closed.set()

    def _check(self, closed: threading.Event) -> None:
        # An event process removes a new timer from the inbox within seconds, so there is nothing to compare before.
        pause_s = driver_watch.QUIET_MS / 1_000
        if closed.wait(pause_s):
            return
        settings = self._settings
        assert settings.url is not None
        context = NamespaceContext(settings.namespace)
        watch = driver_watch.DriverWatch(context)
        servers = ConnectionPools(settings.url, settings.answer_s)
        # The calls of the client report that the server cannot be reached.
        with (
            suppress(TickwheelError, OSError),
            closing(RedisExecutor(servers, settings.display_url, settings.timeout_s)) as io,
        ):
            if not io.run(read_namespace(context)):
                return
            io.run(watch.check())
            if closed.wait(pause_s):
                return
            if (warning := io.run(watch.check())) and not closed.is_set():
                _log.warning("%s", warning)
