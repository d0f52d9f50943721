"""Records the failure of a call whose last attempt a worker refused, because it does not have the task.

Celery's worker does so for the first delivery (`celery.worker.consumer`). Here it is the last attempt: until then,
another worker may have the task.
"""

import logging
from typing import Any, Final

from celery.app.task import Context
from celery.exceptions import NotRegistered

from tickwheel.celery.failure_record import is_cancelled
from tickwheel.celery.revoked_calls import request_of
from tickwheel.model.message import LeasedMessage
from tickwheel.runtime.text_escape import cut_middle
from tickwheel.tasks.app import TaskApp
from tickwheel.tasks.signature import logged_name
from tickwheel.tasks.task import NAME_BYTES
from tickwheel.worker.time_limit import raise_after

_log = logging.getLogger("tickwheel.celery")
# Celery can repeat the calls of a result backend without an end.
_STORE_S: Final = 10.0


def record_unknown_task(celery: Any, app: TaskApp, message: LeasedMessage) -> None:
    """Store FAILURE with NotRegistered if the message is a call of a task that the worker's app does not have.

    Nothing is stored for a call that was revoked, or ignores its result. Raises nothing: an error of the result backend
    is logged, and the attempt to store ends after 10 s.
    """
    request = request_of(message.id, message.payload)
    if request is None or request["task"] in app.tasks or request.get("ignore_result") or is_cancelled(app, message):
        return
    name = cut_middle(request["task"], NAME_BYTES)
    # Without the calls that follow, such as those of a chord: any program can enqueue a message that names some.
    context = Context(
        id=message.id,
        task=name,
        correlation_id=message.id,
        reply_to=request["reply_to"],
        root_id=request.get("root_id"),
        parent_id=request.get("parent_id"),
        retries=message.attempt - 1,
        args=request["args"],
        kwargs=request["kwargs"],
    )
    try:
        with raise_after(_STORE_S, TimeoutError):
            celery.backend.mark_as_failure(message.id, NotRegistered(name), request=context)
    except Exception:
        _log.exception(
            "cannot store in the result backend that call %s of task %s failed",
            *(message.id, logged_name(name, app.tasks)),
        )
