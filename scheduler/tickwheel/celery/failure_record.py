"""Records the end of a call that Celery's tracer cannot record: a time limit, the death of its process, or `revoke`.

In Celery, the main process of a worker does this (`celery.worker.request`). In Tickwheel, the supervisor imports
nothing of the app, so a worker process does it: the process of the task itself, or the process that receives the
message again.
"""

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from celery import signals, states
from celery.app.task import Context
from celery.app.trace import ExceptionInfo
from celery.exceptions import NotRegistered, TimeLimitExceeded, WorkerLostError

from tickwheel import limits
from tickwheel.celery.carry_over import time_limit_of
from tickwheel.errors import MessageNotFound, TickwheelError
from tickwheel.model.message import LeasedMessage, MessageView
from tickwheel.tasks.app import TaskApp
from tickwheel.tasks.exceptions import Reject, Skip
from tickwheel.worker.time_limit import KILLED_OVER_LIMIT

_log = logging.getLogger("tickwheel.celery")
_NO_REPORT: Final = "its lease ended, and its worker reported nothing"
# The last attempt that a message can have does not run its task.
_RUNS_MAX: Final = limits.MAX_ATTEMPTS_MAX - 1
# The error of a message whose task has called ``self.retry(throw=False)``. Its state in the backend is that of the run.
NOT_RAISED: Final = "retried"
# By how much the clock of a worker may be behind that of the server.
_CLOCK_DIFFERENCE: Final = timedelta(minutes=10)


def runs_allowed(task: Any, retries: int) -> int:
    """Return how often a call may run: once, and again for each retry that its task allows.

    ``retries`` is the number of retries before the call was moved. A run that a death of its process ended counts, too.
    """
    automatic = getattr(task, "retry_kwargs", None) or {}
    numbers = (task.max_retries, automatic.get("max_retries", task.max_retries))
    if None in numbers:
        return _RUNS_MAX
    return max(1, min(_RUNS_MAX, max(map(int, numbers)) + 1 - retries))


def max_attempts(task: Any, retries: int) -> int | None:
    """Return the maximum number of attempts of a message, or None for that of its queue, if the task is unknown.

    The last attempt does not run the task. If no earlier attempt has reported an end, the last one records the failure.
    """
    return None if task is None else runs_allowed(task, retries) + 1


def runs_within(attempts: int) -> int:
    """Return how many attempts of a message can run its task, if it has ``attempts`` at most: all except the last.

    If the message has only one attempt, this attempt runs the task, and nothing records the death of its process.
    """
    return max(1, attempts - 1)


def stores_errors(task: Any, request: Mapping[str, Any]) -> bool:
    """Return whether the result backend gets the error of a call, as Celery decides it."""
    ignored = request.get("ignore_result")
    return not (task.ignore_result if ignored is None else ignored) or bool(task.store_errors_even_if_ignored)


def stored_state(task: Any, request: Mapping[str, Any]) -> str | None:
    """Return the state of a call in the result backend, or None if it is unknown, or results are ignored."""
    return _stored_meta(task, request).get("status")


def _stored_meta(task: Any, request: Mapping[str, Any]) -> dict[str, Any]:
    if not stores_errors(task, request):
        return {}
    try:
        # Not from the cache, which may have the result of an earlier call with the same id.
        return dict(task.backend.get_task_meta(request["id"], cache=False))
    except Exception:
        # No backend, or the backend is unreachable. Run the task again, as Celery does.
        return {}


def record_failure(task: Any, request: Mapping[str, Any], error: BaseException, *, call_handlers: bool = False) -> None:
    """Store FAILURE with the error, and send ``task_failure``.

    With ``call_handlers``, also call the handlers ``on_failure`` and ``after_return`` of the task. Celery does so for a
    time limit, but not for a process that died.
    """
    context = Context(request, called_directly=False)
    id_, args, kwargs = request["id"], request["args"], request["kwargs"]
    task.backend.mark_as_failure(id_, error, request=context, store_result=stores_errors(task, request))
    try:
        raise error
    except BaseException:
        einfo = ExceptionInfo()
    task.request_stack.push(context)
    try:
        if call_handlers:
            task.on_failure(error, id_, args, kwargs, einfo)
            task.after_return(states.FAILURE, error, id_, args, kwargs, einfo)
    except Exception:
        _log.exception("a failure handler of task %s failed; ignored", task.name)
    finally:
        signals.task_failure.send(
            sender=task, task_id=id_, exception=error, args=args, kwargs=kwargs, traceback=error.__traceback__,
            einfo=einfo,
        )  # fmt: skip
        task.request_stack.pop()


def record_revoked(task: Any, request: Mapping[str, Any], reason: str, *, expired: bool = False) -> None:
    """Store REVOKED, and send ``task_revoked``, for a call that was not run."""
    context = Context(request, called_directly=False)
    task.backend.mark_as_revoked(request["id"], reason, request=context, store_result=stores_errors(task, request))
    signals.task_revoked.send(sender=task, request=context, terminated=False, signum=None, expired=expired)


def is_cancelled(app: TaskApp, message: LeasedMessage, is_lost: bool = False) -> bool:
    """Return whether the message was cancelled since it was leased: its call was revoked. False if this is unknown.

    ``is_lost``: whether the worker knows that the lease was lost.
    """
    try:
        return app.tickwheel.queue(message.queue).get(message.id, message.exclusive_value).state == "cancelled"
    except MessageNotFound:
        # It was cancelled, and its retention is over. If the lease is not lost, the task has moved the app.
        return is_lost
    except TickwheelError:
        return False


def runs_of_message(app: TaskApp, message: LeasedMessage) -> int:
    """Return how many attempts of the message can run its task, or the greatest possible number if this is unknown.

    A program that does not know the task, or an import, has set no limit. Then the limit is that of the queue.
    """
    try:
        return runs_within(message._max_attempts or app.tickwheel.queue(message.queue).config().max_attempts)
    except TickwheelError:
        return _RUNS_MAX


def check_previous_run(app: TaskApp, message: LeasedMessage, task: Any, request: Mapping[str, Any], runs: int) -> None:
    """Return if the task of a message that is delivered again may run again, and otherwise raise how the call ended.

    Raises Skip or Reject if the previous run has stored a result, and the process died before it settled the message.
    Raises TimeLimitExceeded (of Celery) if the previous run was killed at its time limit. Raises WorkerLostError if all
    ``runs`` that the task and the message allow have begun, and none has reported an end. The last two are recorded as
    the failure of the call.
    """
    view = _read(app, message)
    stored_error = "" if view is None else view.error
    end = None if stored_error == NOT_RAISED else _stored_end(task, request, view)
    if end == states.FAILURE:
        raise Reject("the task had failed before its worker process ended; the result backend has the error")
    if end == states.SUCCESS:
        raise Skip
    # If a lease ends without a report, the message keeps the error of an earlier failure.
    reason = stored_error if "worker" in stored_error else _NO_REPORT
    error: Exception
    if reason == KILLED_OVER_LIMIT:
        error = TimeLimitExceeded(time_limit_of(task).total_seconds())
    elif message.attempt > runs:
        error = WorkerLostError(f"Worker exited prematurely: {reason}.")
    else:
        return
    record_failure(task, request, error, call_handlers=reason == KILLED_OVER_LIMIT)
    raise error


def _read(app: TaskApp, message: LeasedMessage) -> MessageView | None:
    try:
        return app.tickwheel.queue(message.queue).get(message.id, message.exclusive_value)
    except TickwheelError:
        return None


def _stored_end(task: Any, request: Mapping[str, Any], view: MessageView | None) -> str | None:
    """Return the state that a run of the call has stored, or None if it is unknown.

    An application can give the same id to several calls, one after the other. The result of an earlier call was stored
    before this call was due. A worker without the task can have stored a failure before the message was redriven
    (`unknown_task`).
    """
    meta = _stored_meta(task, request)
    if isinstance(error := meta.get("result"), NotRegistered) and error.args[:1] == (task.name,):
        return None
    try:
        ended = datetime.fromisoformat(str(meta.get("date_done")))
    except ValueError:
        ended = None
    # The time zone of a time without one is unknown: it depends on the backend.
    if ended is not None and ended.tzinfo is not None and view is not None and ended < view.due - _CLOCK_DIFFERENCE:
        return None
    return meta.get("status")
