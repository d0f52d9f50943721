"""Records the failure of a call whose task no worker has had, as a Celery worker does.

Celery's worker does so for the first delivery (`celery.worker.consumer`). Here it is the last attempt: until then,
another worker may have the task.
"""

import logging
from typing import Any

from celery.app.task import Context
from celery.exceptions import NotRegistered

from tickwheel.celery.celery_message import why_only_celery_can_run
from tickwheel.celery.revoked_calls import request_of
from tickwheel.model.message import LeasedMessage
from tickwheel.tasks.app import TaskApp

_log = logging.getLogger("tickwheel.celery")


def record_unknown_task(celery: Any, app: TaskApp, message: LeasedMessage) -> None:
    """Store FAILURE with NotRegistered if the message is a call of a task that the worker's app does not have.

    Raises nothing: an error of the result backend is logged.
    """
    request = request_of(message.id, message.payload)
    if request is None or request["task"] in app.tasks or why_only_celery_can_run(request, {}):
        return
    name = request["task"]
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
        hostname=None,
    )
    try:
        celery.backend.mark_as_failure(
            message.id, NotRegistered(name), request=context, store_result=not request.get("ignore_result")
        )
    except Exception:
        _log.exception("cannot store in the result backend that call %s of task %s failed", message.id, name)
