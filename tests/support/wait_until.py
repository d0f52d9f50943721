"""Waiting in tests: for a condition, never for a time."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(condition: Callable[[], T], what: str, within: float = 20.0, pause: float = 0.002) -> T:
    """The condition's first true value; it fails the test, and says what did not happen, where that takes too long.

    ``pause`` 0 looks without a pause, where a millisecond matters.
    """
    deadline = time.monotonic() + within
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {within} s: {what}"
        time.sleep(pause)
    return value


async def eventually_in_task(condition: Callable[[], T], what: str, within: float = 20.0) -> T:
    """The same for a task: others go on meanwhile."""
    deadline = time.monotonic() + within
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {within} s: {what}"
        await asyncio.sleep(0.002)
    return value
