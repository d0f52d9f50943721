"""Waits for conditions in tests, never for a fixed time."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(condition: Callable[[], T], event: str, within: float = 20.0, pause: float = 0.002) -> T:
    """Return the first true value of the condition, or fail the test after ``within`` seconds.

    The error message contains ``event``, a description of the expected event.

    The pauses between two checks grow to five times ``pause``, so that a long wait takes little CPU time. With
    ``pause=0`` there is no pause between checks, for tests in which a millisecond matters.
    """
    deadline, longest = time.monotonic() + within, 5 * pause
    while not (value := condition()):
        assert time.monotonic() < deadline, f"this did not happen within {within} s: {event}"
        time.sleep(pause)
        pause = min(1.1 * pause, longest)
    return value


async def eventually_in_task(condition: Callable[[], T], event: str, within: float = 20.0) -> T:
    """Wait like `eventually`, in an asyncio task, while other tasks run."""
    deadline = time.monotonic() + within
    while not (value := condition()):
        assert time.monotonic() < deadline, f"this did not happen within {within} s: {event}"
        await asyncio.sleep(0.002)
    return value
