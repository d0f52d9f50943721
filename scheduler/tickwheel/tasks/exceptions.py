"""The exceptions by which a task, or a ``before_task`` hook, chooses the outcome of a run, and `TimeLimitExceeded`."""

from tickwheel import limits
from tickwheel.model import validation
from tickwheel.model.validation import Duration


class TaskControl(Exception):
    """Base class of the exceptions that a task raises to choose how it ends."""


class Reject(TaskControl):
    """The task can never succeed. Its message is Errored immediately, with the reason, even if attempts are left."""


class Skip(TaskControl):
    """The task has nothing to do. Its message is Completed, as if the task had run."""


class Expired(Skip):
    """The call of Celery has expired, so its task does not run. The text of the exception has the time."""


class RetryLater(TaskControl):
    """The task cannot run now. Its message fails and is retried after ``delay``; the attempt counts.

    ``delay`` is a timedelta or a number of seconds. Raises InvalidArgument if it is negative or too long.
    """

    def __init__(self, delay: Duration, reason: str = "the task asked to be tried later") -> None:
        self.delay = validation.duration("delay", delay, 0, limits.DELAY_MS_MAX)
        super().__init__(reason)


class ResultNotStored(Exception):
    """The task has succeeded, but its result could not be stored outside Tickwheel. The text states both."""


class TimeLimitExceeded(BaseException):
    """Raised inside a task that exceeds its time limit.

    Derived from BaseException, so that no ``except Exception`` of the task swallows it.
    """
