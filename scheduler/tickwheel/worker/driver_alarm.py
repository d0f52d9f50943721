"""Logs a warning while no event process drives a namespace, from a thread of its own."""

import logging
import threading
from contextlib import suppress
from typing import Final

from tickwheel.client.admin import Admin
from tickwheel.client.blocking import Tickwheel
from tickwheel.client.driver_watch import is_unclaimed
from tickwheel.client.last_resort import LastResort
from tickwheel.election.unclaimed_shards import UNCLAIMED_MS
from tickwheel.errors import TickwheelError
from tickwheel.runtime.log_fields import log_fields

# Pause between two checks, and between two warnings, in seconds. A check is one round trip to Redis.
CHECK_S: Final = 5.0
WARN_S: Final = 30.0
# Time between two thorough checks, in seconds: whether any process takes part in the election, or a call of the
# service.
THOROUGH_S: Final = 10.0
# How long the first check waits until it is known whether this worker drives.
_DECIDE_S: Final = 5.0

_log = logging.getLogger("tickwheel.worker")


class DriverAlarm:
    """Checks the namespace of a client, from `start` until `stop`.

    The embedded server of a data directory is driven while programs use it, so it is not checked.
    """

    def __init__(self, client: Tickwheel, last_resort: LastResort | None = None, log: logging.Logger = _log) -> None:
        """``last_resort``: the child process of this program that drives if nobody else does."""
        self._log = log
        admin = Admin(client)
        self._run, self._context, self._backend = admin.run, admin.context, admin.backend
        self._watch = self._backend.driver_watch(0.0 if last_resort is None else UNCLAIMED_MS)
        self._last_resort = last_resort
        self._is_needed = admin.settings.url is not None
        self._stopping = threading.Event()

    def start(self) -> None:
        """Start the thread. It ends after `stop`, or with the program."""
        if self._is_needed:
            thread = threading.Thread(target=self._check_until_stopped, name="tickwheel-driver-alarm", daemon=True)
            # The host may have no resources for another thread. The worker needs only its other threads.
            with suppress(RuntimeError):
                thread.start()

    def stop(self) -> None:
        """Ask the thread to end. A check that has begun may fail, because its client is closed."""
        self._stopping.set()

    def _check_until_stopped(self) -> None:
        pause_s, thorough_s = WARN_S if self._check_at_start() else 0.0, THOROUGH_S
        while not self._stopping.wait(CHECK_S):
            pause_s, thorough_s = pause_s - CHECK_S, thorough_s - CHECK_S
            # Only a thorough check notices that a driver was killed while the inbox was empty.
            is_thorough = pause_s <= 0 and thorough_s <= 0
            if is_thorough:
                thorough_s = THOROUGH_S
            # Other threads log that the server cannot be reached.
            with suppress(TickwheelError):
                warning = self._run(self._watch.check(is_thorough=is_thorough))
                if pause_s <= 0 and self._warn(warning):
                    pause_s = WARN_S

    def _check_at_start(self) -> bool:
        """Warn at once, unless this program drives soon. Return whether there was a warning."""
        drives = self._last_resort is not None and self._last_resort.may_drive(_DECIDE_S)
        with suppress(TickwheelError):
            if not drives:
                return self._warn(self._run(self._backend.check_drivers()))
            if self._run(is_unclaimed(self._context)):
                self._log_first_claim()
        return False

    def _log_first_claim(self) -> None:
        """Log that this program leaves the first claim of the namespace to event processes for a time."""
        if not self._stopping.is_set():
            self._log.info(
                "nobody has driven namespace %r yet: this program will drive it in about %g s, unless an event process"
                " does before. Until then, delayed messages do not become deliverable",
                *(self._context.namespace, UNCLAIMED_MS / 1_000),
                extra=log_fields("not driven yet"),
            )

    def _warn(self, warning: str) -> bool:
        if not warning or self._stopping.is_set():
            return False
        self._log.warning("%s", warning, extra=log_fields("not driven"))
        return True
