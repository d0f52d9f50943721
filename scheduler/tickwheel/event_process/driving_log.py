"""Logs when a process of last resort begins to drive its namespace, and when it no longer drives.

A process claims many shards one after another. So the number of shards is logged again when it no longer changes.
"""

import logging
from collections.abc import Callable, Mapping
from threading import Event, Thread
from typing import Final

from tickwheel.runtime.log_fields import log_fields

# How long after a change the line may come.
_CHECK_S: Final = 2.0

_log = logging.getLogger("tickwheel.driving")


class DrivingLog:
    """Checks in a thread, from `start` until `close`, whether this process drives shards."""

    def __init__(self, namespace: str, shards: int, led_epochs: Callable[[], Mapping[int, int]]) -> None:
        """``led_epochs`` returns the epoch of each of the ``shards`` that this process drives now."""
        self._namespace = namespace
        self._shards = shards
        self._led_epochs = led_epochs
        # The number of shards at the last check, and in the last line.
        self._count = self._logged = 0
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="tickwheel-driving-log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the thread. Call this after the process has released its shards."""
        self._stopping.set()
        if self._thread.ident:
            self._thread.join()
        self.check()

    def check(self) -> None:
        """Log a line if this process drives, and did not at the last check, or the other way round.

        Log another line if it drives another number of shards than in the last line, and as many as at the last check.
        """
        before, self._count = self._count, len(self._led_epochs())
        count, logged = self._count, self._logged
        if count == logged or (count and logged and count != before):
            return
        self._logged = count
        if not count:
            text, extra = "this program no longer drives namespace %s", log_fields("no longer drives")
            _log.info(text, self._namespace, extra=extra)
            return
        begins = "drives namespace %s with" if logged else "now drives namespace %s:"
        extra = log_fields("drives", shards=count)
        _log.info(f"this program {begins} %d of %d shards", self._namespace, count, self._shards, extra=extra)

    def _run(self) -> None:
        while not self._stopping.wait(_CHECK_S):
            self.check()
