"""The log of tasks: a line when a message is received, and a line with the outcome once the server has accepted it.

The lines have the names of tasks and the ids of messages, never arguments or payloads. Error texts are logged, up to
1 KiB, as they are stored with the message.
"""

import logging
import sys
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec

from tickwheel.client import Message
from tickwheel.operations.settle import FailedAttempt
from tickwheel.runtime.log_batch import LineBatch, log_lines
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.storage.record import State
from tickwheel.tasks import signature
from tickwheel.tasks.app import TaskApp
from tickwheel.tasks.run_context import Outcome
from tickwheel.tasks.signature import logged_name

if TYPE_CHECKING:
    from tickwheel.worker.completer import FinishedTask

P = ParamSpec("P")
_log = logging.getLogger("tickwheel.worker")
_error_throttle = LogThrottle()
# Why the server refuses the outcome of a task. The answer is the same for both reasons.
_LOST = "the message was cancelled, or another worker may have it"


def _report_errors(log: Callable[P, None]) -> Callable[P, None]:
    """Return the method, which then reports its errors instead of raising them.

    The app of a worker can add handlers and filters to the log, and they can fail. The outcome of a task, and the
    thread that settles the messages of all tasks, must not depend on them.
    """

    @wraps(log)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            log(*args, **kwargs)
        except Exception as error:
            if _error_throttle.should_log(repr(error)):
                report_bug(error)

    return call


def report_bug(error: Exception) -> None:
    """Report an error as one that nobody has caught. Raises nothing: the report goes to the log, which may fail."""
    with suppress(Exception):
        sys.excepthook(type(error), error, error.__traceback__)


class TaskLog:
    """Logs the tasks of one process. Thread-safe. No method raises an error of the log.

    Without ``is_on``, only failures that no task has chosen, and lost leases, are logged.
    """

    def __init__(self, app: TaskApp, *, is_on: bool = True) -> None:
        self._tasks = app.tasks
        self._is_on = is_on

    @_report_errors
    def received(self, messages: Sequence[Message]) -> None:
        """Log the messages of a batch."""
        if self._has_info():
            calls = [(message, called_task(message, self._tasks)) for message in messages]
            log_lines(_log, logging.INFO, LineBatch(calls, _received, _received_fields))

    @_report_errors
    def completed(self, tasks: Sequence["FinishedTask"]) -> None:
        """Log tasks that have succeeded, or did not run because their calls had expired: the messages are Completed."""
        if self._has_info():
            log_lines(_log, logging.INFO, LineBatch(tasks, self._completed, self._completed_fields))

    @_report_errors
    def released(self, tasks: Sequence["FinishedTask"]) -> None:
        """Log messages that are released before their tasks have begun."""
        if self._has_info():
            log_lines(_log, logging.INFO, LineBatch(tasks, _released, _released_fields))

    @_report_errors
    def failed(self, task: "FinishedTask", answer: FailedAttempt) -> None:
        """Log a task that has failed, with the state of its message.

        An error that the task has not raised on purpose (`Reject`, `RetryLater`) is logged with its traceback, unless
        Celery has logged the traceback.
        """
        message, outcome = task.message, task.outcome
        assert outcome is not None
        error = outcome._exception
        fields: dict[str, Any] = {
            "event": "task failed",
            "queue": message.queue,
            "id": message.id,
            "attempt": message.attempt,
            "task": self._name(outcome.task),
            "error": outcome.error,
            "state": answer.state,
            "duration_ms": _milliseconds(outcome.seconds),
        }
        if answer.max_attempts:
            fields["max_attempts"] = answer.max_attempts
        if answer.state == State.ERRORED.label:
            level = logging.INFO if outcome._is_deliberate else logging.ERROR
            text = f"errored, {'not retried' if outcome._ends_retries else 'attempts used up'}: {outcome.error}"
        else:
            level = logging.INFO if error is None else logging.WARNING
            if answer.retry_in_ms is not None:
                fields["again_in_s"] = answer.retry_in_ms / 1_000
            text = f"failed, {_attempt(message, answer)}, {_again(answer)}: {outcome.error}"
        head = _head(message, self._name(outcome.task))
        if level > logging.INFO:
            _log.log(level, "%s: %s", head, text, exc_info=_traceback_of(outcome), extra={"fields": fields})
        elif self._has_info():
            log_lines(_log, level, LineBatch([fields], lambda _: f"{head}: {text}", lambda fields: fields))

    @_report_errors
    def lost(self, tasks: Sequence["FinishedTask"], reason: str = _LOST) -> None:
        """Log tasks whose outcome the server has refused, because the leases of their messages were lost."""
        for task in tasks:
            text = f"lost its lease: {_describe_end(task.outcome)}; {reason}"
            _log_unaccepted("lease lost", task, self._name_of(task), text)

    @_report_errors
    def unconfirmed(self, tasks: Sequence["FinishedTask"]) -> None:
        """Log tasks whose outcome the server has not accepted, or not confirmed, because a call failed."""
        for task in tasks:
            text = f"{_describe(task.outcome)}; the server has not confirmed it, so the message may be delivered again"
            _log_unaccepted("outcome not confirmed", task, self._name_of(task), text)

    def _has_info(self) -> bool:
        return self._is_on and _log.isEnabledFor(logging.INFO)

    def _name(self, task: str) -> str:
        return logged_name(task, self._tasks)

    def _name_of(self, task: "FinishedTask") -> str:
        return called_task(task.message, self._tasks) if task.outcome is None else self._name(task.outcome.task)

    def _completed(self, task: "FinishedTask") -> str:
        message, outcome = task.message, task.outcome
        assert outcome is not None
        return f"{_head(message, self._name(outcome.task))}: {_describe(outcome)}"

    def _completed_fields(self, task: "FinishedTask") -> dict[str, Any]:
        message, outcome = task.message, task.outcome
        assert outcome is not None
        if outcome._expired is not None:
            return _expired_fields(message, self._name(outcome.task))
        return {
            "event": "task succeeded",
            "queue": message.queue,
            "id": message.id,
            "attempt": message.attempt,
            "task": self._name(outcome.task),
            "duration_ms": _milliseconds(outcome.seconds),
        }


def called_task(message: Message, names: Container[str]) -> str:
    """Return the name of the task that a message calls, as logs show it."""
    return signature.called_task(message.payload, names)


def _received(call: tuple[Message, str]) -> str:
    message, task = call
    return f"{_head(message, task)}: received"


def _received_fields(call: tuple[Message, str]) -> dict[str, Any]:
    message, task = call
    return {
        "event": "task received",
        "queue": message.queue,
        "id": message.id,
        "attempt": message.attempt,
        "task": task,
    }


def _expired_fields(message: Message, task: str) -> dict[str, Any]:
    return {
        "event": "task expired",
        "queue": message.queue,
        "id": message.id,
        "attempt": message.attempt,
        "task": task,
    }


def _released(task: "FinishedTask") -> str:
    return f"{task.message.queue}/{task.message.id}: released before its task began"


def _released_fields(task: "FinishedTask") -> dict[str, Any]:
    message = task.message
    return {"event": "task released", "queue": message.queue, "id": message.id, "attempt": message.attempt}


def _log_unaccepted(event: str, task: "FinishedTask", name: str, text: str) -> None:
    message, outcome = task.message, task.outcome
    fields: dict[str, Any] = {
        "event": event,
        "queue": message.queue,
        "id": message.id,
        "attempt": message.attempt,
        "task": name,
    }
    error = None
    if outcome is not None:
        fields["duration_ms"] = _milliseconds(outcome.seconds)
        error = _traceback_of(outcome)
        if outcome.error is not None:
            fields["error"] = outcome.error
    _log.warning("%s: %s", _head(message, name), text, exc_info=error, extra={"fields": fields})


def _traceback_of(outcome: Outcome) -> BaseException | None:
    """Return the error whose traceback the log needs. The tasks of Celery have logged most of their errors already."""
    return None if outcome._is_error_logged else outcome._exception


def _head(message: Message, task: str) -> str:
    return f"{message.queue}/{message.id} {task}"


def _describe_end(outcome: Outcome | None) -> str:
    """Describe the end of a task whose outcome has no effect. A task that was stopped ends without an error, too."""
    if outcome is None or outcome.error is not None:
        return _describe(outcome)
    return f"its task ended after {_duration(outcome.seconds)}"


def _describe(outcome: Outcome | None) -> str:
    if outcome is None:
        return "its task was not started"
    if outcome._expired is not None:
        return f"not run, {outcome._expired}"
    if outcome.error is None:
        return f"succeeded in {_duration(outcome.seconds)}"
    return f"failed after {_duration(outcome.seconds)}: {outcome.error}"


def describe_failure(message: Message, answer: FailedAttempt, *, is_final: bool) -> str:
    """Describe the failure of a message whose task has not ended itself."""
    if answer.state != State.ERRORED.label:
        return f"failed, {_attempt(message, answer)}, {_again(answer)}"
    return f"errored, {'not retried' if is_final else 'attempts used up'} ({_attempt(message, answer)})"


def _attempt(message: Message, answer: FailedAttempt) -> str:
    return f"attempt {message.attempt}" + (f" of {answer.max_attempts}" if answer.max_attempts else "")


def _again(answer: FailedAttempt) -> str:
    if answer.state == State.PENDING.label:
        return "again immediately"
    if answer.retry_in_ms is None:
        return "again after the back-off of its queue"
    return f"again in {_duration(answer.retry_in_ms / 1_000)}"


def _milliseconds(seconds: float) -> float:
    return round(1_000 * seconds, 3)


def _duration(seconds: float) -> str:
    if seconds < 0.01:
        return f"{1_000 * seconds:.1f} ms"
    return f"{1_000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:,.1f} s"
