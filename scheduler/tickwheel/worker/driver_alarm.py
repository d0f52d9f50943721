"""Logs a warning while no event process drives a namespace, from a thread of its own."""

import logging
import threading
from contextlib import suppress
from typing import Final

from tickwheel.client.admin import Admin
from tickwheel.client.blocking import Tickwheel
from tickwheel.client.driver_watch import DriverWatch
from tickwheel.errors import TickwheelError
from tickwheel.runtime.log_fields import log_fields

# Pause between two checks, and between two warnings, in seconds. A check is one round trip.
CHECK_S: Final = 5.0
WARN_S: Final = 30.0

_log = logging.getLogger("tickwheel.worker")


class DriverAlarm:
    """Checks the namespace of a client of Redis, from `start` until `stop`.

    The client's own embedded server, and a service, have event processes of their own, so they are not checked.
    """

    def __init__(self, client: Tickwheel) -> None:
        admin = Admin(client)
        self._run, self._watch = admin.run, DriverWatch(admin.context)
        self._is_needed = admin.settings.url is not None and not admin.settings.is_service
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
        pause_s = 0.0
        while not self._stopping.wait(CHECK_S):
            pause_s -= CHECK_S
            # Other threads log that the server cannot be reached.
            with suppress(TickwheelError):
                warning = self._run(self._watch.check())
                if warning and pause_s <= 0 and not self._stopping.is_set():
                    _log.warning("%s", warning, extra=log_fields("not driven"))
                    pause_s = WARN_S
