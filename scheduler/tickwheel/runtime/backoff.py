"""The wait before a retry, after one or more failures in a row: exponential back-off with jitter.

"Exponential Backoff And Jitter" (AWS Architecture Blog, 2015) describes full jitter and equal jitter.
"""

import random
from collections.abc import Callable
from typing import Final, TypeVar

N = TypeVar("N", int, float)
# A separate generator, so that the waits do not change the state of the program's global generator.
_RANDOM: Final = random.Random()

# The maximum number of doublings.
_DOUBLINGS_MAX: Final = 40


def exponential(first: N, longest: N, failures: int) -> N:
    """Return the upper bound of the wait after ``failures`` failures in a row.

    The bound is ``first`` after one failure, and doubles with each further failure up to ``longest``.
    """
    return min(longest, first * (1 << min(max(failures - 1, 0), _DOUBLINGS_MAX)))


def full_jitter(bound: float, draw: Callable[[], float] = _RANDOM.random) -> float:
    """Return a random wait from zero to the bound."""
    return bound * draw()


def equal_jitter(bound: float, draw: Callable[[], float] = _RANDOM.random) -> float:
    """Return a random wait from half of the bound to the bound."""
    return bound * (1 + draw()) / 2


class Backoff:
    """Waits in seconds with equal jitter: each wait is random, between half of the bound and the bound."""

    def __init__(self, first: float = 0.05, longest: float = 2.0) -> None:
        self.first = first
        self.longest = longest
        self._failures = 0

    def reset(self) -> None:
        """Start from the first wait again, after a success."""
        self._failures = 0

    def next(self) -> float:
        """Count one more failure, and return the number of seconds to wait."""
        self._failures += 1
        return equal_jitter(exponential(self.first, self.longest, self._failures))
