"""Logs a warning if a client enqueues messages for later, and no event process drives the namespace.

The check runs in a thread, and on connections of its own, so it delays no call, and works for both clients.
"""

import threading
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import replace
from logging import getLogger
from time import monotonic
from typing import Any, Final

from tickwheel.client import driver_watch
from tickwheel.client.backend import Backend
from tickwheel.client.grpc import channel
from tickwheel.client.settings import ClientSettings
from tickwheel.errors import TickwheelError
from tickwheel.model.message import EnqueueResult
from tickwheel.redis.blocking_executor import RedisExecutor
from tickwheel.redis.pools import ConnectionPools
from tickwheel.runtime.log_throttle import LogThrottle

# A program logs at most one warning about a namespace in this time, in seconds.
PAUSE_S: Final = 60.0
# A client begins at most one check in this time, in seconds. A check lasts a little longer than 2 * QUIET_MS.
CHECK_PAUSE_S: Final = 25.0
# The first part of a check delays the end of the program by at most about this time, in seconds.
_AT_ONCE_S: Final = 1.0
# They end a check. The calls of the client report that the server cannot be reached.
_IGNORED: Final = (TickwheelError, OSError)

_log = getLogger("tickwheel")
# All clients of the program share it, because a program can open a client for each call.
_throttle: Final = LogThrottle(PAUSE_S)
# Checks the namespace with the plans of the backend, until the event is set.
Check = Callable[[Backend, threading.Event], None]


class UndrivenNotice:
    """The checks of one client. Thread-safe.

    If nobody has ever driven the namespace, the client warns at once. Otherwise it compares what the shards show over
    time. A client of the service asks the service instead. The embedded server of a data directory is driven while
    programs use it, so it is not checked.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._is_needed = settings.url is not None
        # Whether the first part of a check would find nothing: the event process of this client needs some time until
        # it drives, or a shard was claimed before. If the claims are removed later, the second part notices it.
        self._was_claimed = settings.drives
        self._next_at = 0.0
        self._closed = threading.Event()

    def turn_off(self) -> None:
        """Never warn: the program has warnings of its own."""
        self._is_needed = False

    def on_enqueued(self, results: Iterable[EnqueueResult], backend: Backend) -> None:
        """Begin a check if one of the messages is not due yet, unless a check began less than CHECK_PAUSE_S ago.

        ``backend`` builds the plans of the check.
        """
        if not self._is_needed or monotonic() < self._next_at:
            return
        if any(result.state == "invisible" for result in results):
            self._next_at = monotonic() + CHECK_PAUSE_S
            if self._was_claimed:
                self._start(self._compare, backend, self._closed, daemon=True)
            else:
                # The program does not end before this thread. Otherwise a short script would never log the warning.
                self._start(self._check_at_once, backend, self._closed, daemon=False)

    def close(self) -> None:
        """End the checks that are in progress, except for their first part, which is short."""
        closed, self._closed = self._closed, threading.Event()
        closed.set()

    def _check_at_once(self, backend: Backend, closed: threading.Event) -> None:
        with suppress(*_IGNORED), closing(self._executor(_AT_ONCE_S)) as io:
            if warning := io.run(backend.check_unclaimed()):
                self._log(warning)
                return
            self._was_claimed = True
        if not closed.is_set():
            self._start(self._compare, backend, closed, daemon=True)

    def _compare(self, backend: Backend, closed: threading.Event) -> None:
        # An event process removes a new timer from the inbox within seconds, so there is nothing to compare before.
        pause_s = driver_watch.QUIET_MS / 1_000
        if closed.wait(pause_s):
            return
        with suppress(*_IGNORED), closing(self._executor(self._settings.timeout_s)) as io:
            watch = backend.driver_watch()
            io.run(watch.check())
            if closed.wait(pause_s):
                return
            if (warning := io.run(watch.check(is_thorough=True))) and not closed.is_set():
                self._log(warning)

    def _log(self, warning: str) -> None:
        if _throttle.should_log(f"{self._settings.display_url} {self._settings.namespace}"):
            _log.warning("%s", warning)

    def _executor(self, seconds: float) -> Any:
        """Return an executor with connections of its own, whose calls are retried for at most ``seconds``."""
        settings = replace(self._settings, timeout_s=min(self._settings.timeout_s, seconds))
        if settings.is_service:
            return channel.blocking_executor(settings)
        assert settings.url is not None
        servers = ConnectionPools(settings.url, min(self._settings.answer_s, seconds))
        return RedisExecutor(servers, settings.display_url, settings.timeout_s)

    @staticmethod
    def _start(check: Check, backend: Backend, closed: threading.Event, *, daemon: bool) -> None:
        # The host may have no resources for another thread, or the program ends.
        with suppress(RuntimeError):
            threading.Thread(target=check, args=(backend, closed), name="tickwheel-undriven", daemon=daemon).start()
