"""When a task that failed is tried again: exponential back-off with full jitter, and errors that are never retried."""

import random
from dataclasses import dataclass
from datetime import timedelta

from tickwheel import limits
from tickwheel.errors import InvalidArgument
from tickwheel.model import validation
from tickwheel.runtime.backoff import exponential, full_jitter

# The program is wrong: another attempt is as wrong.
NEVER: tuple[type[BaseException], ...] = (NotImplementedError, SyntaxError, NameError)


@dataclass(frozen=True, slots=True)
class Retry:
    """Back-off of a task: up to ``first`` after the first failure, twice as much after each, and never over ``most``.

    Without one a task has the back-off of its queue. Errors of the kinds in ``never`` leave no attempt over: by default
    NotImplementedError, SyntaxError and NameError. How often it is tried is ``max_attempts`` of the task.
    """

    first: timedelta = timedelta(seconds=1)
    most: timedelta = timedelta(minutes=10)
    never: tuple[type[BaseException], ...] = NEVER

    def __post_init__(self) -> None:
        first_ms = validation.duration_ms("first", self.first, 0, limits.DELAY_MS_MAX)
        validation.duration_ms("most", self.most, first_ms, limits.DELAY_MS_MAX)
        if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in self.never):
            raise InvalidArgument(f"never must be a tuple of exception classes, not {validation.preview(self.never)}")

    def delay(self, attempt: int, rng: random.Random) -> timedelta:
        """The back-off after the failure of this attempt, which counts from 1."""
        # Compared as numbers: a timedelta has no room for so many doublings.
        bound = exponential(self.first.total_seconds(), self.most.total_seconds(), attempt)
        return timedelta(seconds=full_jitter(bound, rng.random))
