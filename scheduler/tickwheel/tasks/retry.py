"""Retries of failed tasks: exponential back-off with equal jitter, and the errors that are never retried."""

import random
from dataclasses import dataclass
from datetime import timedelta

from tickwheel import limits
from tickwheel.errors import InvalidArgument
from tickwheel.model import validation
from tickwheel.model.validation import Duration, as_timedelta
from tickwheel.runtime.backoff import equal_jitter, exponential

# These errors are bugs in the program. Another attempt would fail in the same way.
NEVER: tuple[type[BaseException], ...] = (NotImplementedError, SyntaxError, NameError)


@dataclass(frozen=True, slots=True)
class Retry:
    """The back-off of a task: a random time between half of a bound and the bound.

    After the first failure, the bound is ``first`` (default 1 s). It doubles with each further failure, up to ``most``
    (default 10 min). Both are timedeltas or numbers of seconds. A task without a `Retry` has the back-off of its queue.
    An error of a class in ``never`` makes the message Errored immediately; the default is NotImplementedError,
    SyntaxError and NameError. ``max_attempts`` of the task limits the attempts. Raises InvalidArgument.
    """

    first: Duration = timedelta(seconds=1)
    most: Duration = timedelta(minutes=10)
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
        first, most = (as_timedelta(duration).total_seconds() for duration in (self.first, self.most))
        bound = exponential(first, most, attempt)
        return timedelta(seconds=equal_jitter(bound, rng.random))
