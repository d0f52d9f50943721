"""Retries of failed tasks: exponential back-off with full jitter, and the errors that are never retried."""

import random
from dataclasses import dataclass
from datetime import timedelta

from tickwheel import limits
from tickwheel.errors import InvalidArgument
from tickwheel.model import validation
from tickwheel.runtime.backoff import exponential, full_jitter

# These errors are bugs in the program. Another attempt would fail in the same way.
NEVER: tuple[type[BaseException], ...] = (NotImplementedError, SyntaxError, NameError)


@dataclass(frozen=True, slots=True)
class Retry:
    """The back-off of a task: a random time from zero to a bound.

    After the first failure, the bound is ``first`` (default 1 s). It doubles with each further failure, up to ``most``
    (default 10 min). A task without a `Retry` has the back-off of its queue. An error of a class in ``never`` makes the
    message Errored immediately; the default is NotImplementedError, SyntaxError and NameError. ``max_attempts`` of the
    task limits the attempts. Raises InvalidArgument.
    """

    first: timedelta = timedelta(seconds=1)
    most: timedelta = timedelta(minutes=10)
    never: tuple[type[BaseException], ...] = NEVER

    def __post_init__(self) -> None:
        first_ms = validation.duration_ms("first", self.first, 0, limits.DELAY_MS_MAX)
        validation.duration_ms("most", self.most, first_ms, limits.DELAY_MS_MAX)
        if not isinstance(self.never, tuple) or not all(
            isinstance(kind, type) and issubclass(kind, BaseException) for kind in self.never
        ):
            raise InvalidArgument(f"never must be a tuple of exception classes, not {validation.preview(self.never)}")

    def delay(self, attempt: int, rng: random.Random) -> timedelta:
        """Return a random back-off after the failure of this attempt. The first attempt is 1."""
        # Seconds as floats: a timedelta overflows after too many doublings.
        bound = exponential(self.first.total_seconds(), self.most.total_seconds(), attempt)
        return timedelta(seconds=full_jitter(bound, rng.random))
