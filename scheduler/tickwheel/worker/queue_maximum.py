"""The maximum of attempts that a queue sets, for the outcomes of failed tasks."""

import time
from contextlib import suppress
from typing import Final

from tickwheel.client import Tickwheel
from tickwheel.errors import TickwheelError

# How long a maximum is used without a read, and how long a read may take, in seconds.
_CACHE_S: Final = 60.0
_READ_S: Final = 1.0


class QueueMaximum:
    """Returns the maximum of attempts of the messages of a queue that have none of their own. Thread-safe."""

    def __init__(self, tickwheel: Tickwheel) -> None:
        self._tickwheel = tickwheel
        # By queue: the maximum, if it is known, and the monotonic time until which it is used.
        self._cache: dict[str, tuple[int | None, float]] = {}

    def __call__(self, queue: str) -> int | None:
        """Return the maximum, or None if it is unknown.

        A client of Redis knows the settings of its queues. A client of the service reads them once a minute.
        """
        if (config := self._tickwheel._context.configs.get(queue)) is not None:
            return config.max_attempts
        maximum, until = self._cache.get(queue, (None, 0.0))
        if time.monotonic() >= until:
            # If the server is unreachable, or the queue was deleted, keep the last known maximum.
            with suppress(TickwheelError):
                maximum = self._tickwheel.queue(queue).config(timeout=_READ_S).max_attempts
            self._cache[queue] = maximum, time.monotonic() + _CACHE_S
        return maximum
