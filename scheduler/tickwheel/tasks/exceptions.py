"""What a task, or a middleware before it, raises to say how it ends; and what stops one that takes too long."""

from datetime import timedelta

from tickwheel import limits
from tickwheel.model import validation


class TaskControl(Exception):
    """How a task ends, said by raising it."""


class Reject(TaskControl):
    """It cannot be done, now or later: Errored at once, with the reason, whatever attempts are left."""


class Skip(TaskControl):
    """It need not be done: Completed, as if it had run."""


class RetryLater(TaskControl):
    """Not now: failed, with a back-off of this call's own. The attempt counts."""

    def __init__(self, delay: timedelta, reason: str = "the task asked to be tried later") -> None:
        validation.duration_ms("delay", delay, 0, limits.DELAY_MS_MAX)
        super().__init__(reason)
        self.delay = delay


class TimeLimitExceeded(BaseException):
    """Raised inside of a task that is past its time limit; no ``except Exception`` swallows it."""
