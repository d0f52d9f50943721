"""One run of a task and its outcome, for middleware and tasks."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from tickwheel.errors import TickwheelError
from tickwheel.model.message import LeasedMessage
from tickwheel.tasks.task import Task


@dataclass(slots=True)
class Outcome:
    """The end of one run of a task.

    ``error`` is None if the task succeeded, and ``result`` is then its result as JSON. ``retry_in`` is the back-off of
    a failed task; None means the back-off of the queue. ``final`` means that the task is not retried, because of its
    error, or because this was its last attempt. ``seconds`` is the duration of the run.
    """

    task: str
    seconds: float = 0.0
    result: str | None = None
    error: str | None = None
    retry_in: timedelta | None = None
    final: bool = False
    # The result as it is stored with the message. It is "null" if the task has returned None, so that a caller who
    # waits for the result can distinguish this from a result that was not stored.
    _stored_result: str | None = field(default=None, init=False, repr=False, compare=False)
    # The error that the task raised. A worker logs it with the answer of the server.
    _exception: BaseException | None = field(default=None, init=False, repr=False, compare=False)
    # Whether ``final`` is set because the attempts of the message are used up. The server decides this.
    _is_last_attempt: bool = field(default=False, init=False, repr=False, compare=False)
    # Whether the task has chosen its failure, by `Reject` or `RetryLater`.
    _is_deliberate: bool = field(default=False, init=False, repr=False, compare=False)
    # Whether the log has the traceback of the error already.
    _is_error_logged: bool = field(default=False, init=False, repr=False, compare=False)
    # Why the task did not run, if its call has expired. Its message is Completed.
    _expired: str | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def _ends_retries(self) -> bool:
        """Whether the outcome makes the message Errored even if attempts are left."""
        return self.final and not self._is_last_attempt


# Returned instead of a value by a task whose result is not stored with the message, but elsewhere.
STORED_ELSEWHERE: Final = object()


@dataclass(slots=True)
class Run:
    """One run of a task: the task, its message and its arguments by name."""

    task: Task[..., Any]
    message: LeasedMessage
    arguments: dict[str, Any] = field(default_factory=dict)
    is_lost: Callable[[], bool] = field(default=lambda: False)
    """Returns whether the lease is lost, for example because the message was cancelled: another worker may have the
    message, or another message of its exclusive value. Also true while the lease is over by the clock of the worker,
    because no renewal has succeeded. Check it before a side effect that must not happen twice."""
    # Whether the code of the task has logged its error with the traceback.
    _is_error_logged: bool = field(default=False, init=False, repr=False, compare=False)
    # Whether the run is over. What the task has started, such as an asyncio task, still has the context of the run.
    _has_ended: bool = field(default=False, init=False, repr=False, compare=False)


CURRENT_RUN: Final[ContextVar[Run | None]] = ContextVar("tickwheel_run", default=None)


def current() -> Run:
    """Return the run to which the calling code belongs: its task, and its message with id and attempt.

    Raises TickwheelError if no task is running.
    """
    run = CURRENT_RUN.get()
    if run is None:
        raise TickwheelError("no task is running here")
    return run


def running_task() -> dict[str, Any] | None:
    """Return the fields of log lines that name the run to which the calling code belongs, or None after its end."""
    run = CURRENT_RUN.get()
    if run is None or run._has_ended:
        return None
    message = run.message
    return {"queue": message.queue, "id": message.id, "attempt": message.attempt, "task": run.task.name}
