"""Runs the tasks of a Celery app in a Tickwheel worker, with Celery's tracer: the function that runs a task in Celery.

So bound tasks, `self.request`, signals, handlers, autoretry and the result backend work as in a Celery worker.
`self.retry` fails the message, with the countdown of the retry as the back-off. An error that is not retried is final,
as in Celery.
"""

import os
import socket
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from celery import signals, states
from celery.app.trace import build_tracer
from celery.backends.base import DisabledBackend
from celery.exceptions import TimeLimitExceeded as CeleryTimeLimitExceeded
from kombu.utils.json import dumps, loads

from tickwheel import limits
from tickwheel.celery.celery_message import parse_time, why_only_celery_can_run
from tickwheel.errors import InvalidArgument
from tickwheel.model import validation as arguments
from tickwheel.runtime.foreign_data import decode_json
from tickwheel.tasks.app import TaskApp
from tickwheel.tasks.exceptions import Reject, RetryLater, Skip, TimeLimitExceeded
from tickwheel.tasks.middleware import Middleware
from tickwheel.tasks.retry import Retry
from tickwheel.tasks.run_context import current

# The tracer returns the outcome of a task, including errors and retries. If `_finish` raises the error of a task,
# Celery has decided not to retry the task, so Tickwheel must not retry it either.
_FINAL = Retry(never=(BaseException,))
_NO_TIME_LIMIT = timedelta(days=7)
_BUILT_IN = "celery."
# The name of this worker in Celery's events and requests.
_HOSTNAME = f"tickwheel@{socket.gethostname()}"


@dataclass(slots=True)
class _CurrentCall:
    """The running call. ``retry_at`` is the time of the retry that its task has requested, or None."""

    id: str
    retries: int
    arguments: list[Any]
    retry_at: datetime | None = None


_current_call: ContextVar[_CurrentCall | None] = ContextVar("tickwheel_celery_call", default=None)


def is_retry(message: Any) -> bool:
    """Return whether a message is the retry of the running call. If so, record the time of the retry.

    The caller must not send a retry, because `_finish` fails the message of the running call instead.

    Raises InvalidArgument if the retry has other arguments than the call.
    """
    call = _current_call.get()
    if call is None or message.headers.get("id") != call.id or message.headers.get("retries") != call.retries + 1:
        return False
    if decode_json(dumps(message.body[:2])) != call.arguments:
        raise InvalidArgument(
            f"task {call.id} was retried with other arguments: a message cannot be changed; call the task again instead"
        )
    eta = message.headers.get("eta")
    call.retry_at = datetime.now(UTC) if eta is None else parse_time("eta", eta, UTC)
    return True


def declare(celery: Any, app: TaskApp, queues: Mapping[str, str]) -> None:
    """Declare the tasks and the queues of a Celery app in ``app``.

    The Celery app loads its tasks as in a Celery worker. Tasks that ``app`` already has stay as they are.
    """
    celery.loader.init_worker()
    celery.set_current()
    for name in celery.amqp.queues:
        declare_queue(app, queue_name(name, queues))
    celery_names = {tickwheel_name: celery_name for celery_name, tickwheel_name in queues.items()}
    for name, task in sorted(celery.tasks.items()):
        if name.startswith(_BUILT_IN) or name in app.tasks:
            continue
        own = {"queue": task.queue} if getattr(task, "queue", None) else {}
        routed = celery.amqp.router.route(own, name, (), {}, task)["queue"]
        queue = queue_name(getattr(routed, "name", routed), queues)
        declare_queue(app, queue)
        limit = task.time_limit or celery.conf.task_time_limit
        limit = limit or task.soft_time_limit or celery.conf.task_soft_time_limit
        app.task(
            name=name,
            queue=queue,
            time_limit=timedelta(seconds=limit) if limit else _NO_TIME_LIMIT,
            retry=_FINAL,
        )(_make_function(celery, task, celery_names))
    app.add_middleware(_WorkerSignals(celery))


def declare_queue(app: TaskApp, name: str) -> None:
    """Declare the queue in the app, with the maximum payload limit, unless the app has declared the queue itself."""
    if name not in app.queues:
        app.queue(name, payload_limit=limits.PAYLOAD_BYTES_MAX)


def queue_name(celery_name: str, queues: Mapping[str, str]) -> str:
    """Return the Tickwheel name for a Celery queue. Raises InvalidArgument if Tickwheel does not allow the name."""
    name = queues.get(celery_name, celery_name)
    try:
        return arguments.plain_name("a queue's name", name)
    except InvalidArgument as error:
        raise InvalidArgument(f"{error}; set another name: migrate(…, queues={{{celery_name!r}: …}})") from error


def max_attempts(task: Any, retries: int) -> int | None:
    """Return the maximum number of attempts of a call: its first run and the retries that Celery allows."""
    if task is None:
        return None
    maximum = limits.MAX_ATTEMPTS_MAX if task.max_retries is None else task.max_retries + 1 - retries
    return max(1, min(limits.MAX_ATTEMPTS_MAX, maximum))


def _make_function(celery: Any, task: Any, celery_names: Mapping[str, str]) -> Callable[..., Any]:
    tracer = build_tracer(task.name, task, hostname=_HOSTNAME, app=celery)

    def run(headers: dict[str, Any], body: str, reply_to: str = "", priority: int | None = None) -> Any:
        message = current().message
        stores = not (headers.get("ignore_result") or task.ignore_result)
        args, kwargs, embedded = loads(body)
        # Producers and imports keep such calls in Celery. But another program can enqueue any payload, and could
        # otherwise make Celery's tracer send any call to any queue of Celery.
        if reason := why_only_celery_can_run(headers, embedded or {}):
            raise Reject(reason)
        if expires := headers.get("expires"):
            _check_not_expired(celery, task, message.id, expires, stores)
        call = _CurrentCall(message.id, int(headers.get("retries") or 0) + message.attempt - 1, decode_json(body)[:2])
        delivery = {
            "exchange": "",
            "routing_key": celery_names.get(message.queue, message.queue),
            "priority": priority,
            "redelivered": message.attempt > 1,
        }
        request = {
            **headers,
            "id": message.id,
            "task": task.name,
            "retries": call.retries,
            "hostname": _HOSTNAME,
            "reply_to": reply_to,
            "correlation_id": message.id,
            "delivery_info": delivery,
            "args": args,
            "kwargs": kwargs,
            "is_eager": False,
        }
        token = _current_call.set(call)
        try:
            value, info, *_ = tracer(message.id, args, kwargs, request)
        except TimeLimitExceeded as error:
            timeout_error = CeleryTimeLimitExceeded(current().task.time_limit.total_seconds())
            task.backend.mark_as_failure(message.id, timeout_error, store_result=stores)
            raise timeout_error from error
        finally:
            _current_call.reset(token)
        return _finish(task, call, value, info)

    return run


def _finish(task: Any, call: _CurrentCall, value: Any, info: Any) -> Any:
    """Convert the outcome of the tracer for `TaskApp`: return the task's value, or raise an exception."""
    state = states.SUCCESS if info is None else info.state
    # With ``self.retry(throw=False)``, the state is SUCCESS although the task requested a retry.
    if state == states.RETRY or (state == states.SUCCESS and call.retry_at is not None):
        wait = timedelta(0) if call.retry_at is None else call.retry_at - datetime.now(UTC)
        raise RetryLater(max(wait, timedelta(0)), "retried" if info is None else str(info.retval))
    if state == states.SUCCESS:
        # If Celery has a result backend, the backend has stored the value already.
        return value if isinstance(task.backend, DisabledBackend) else None
    if state == states.IGNORED:
        raise Skip
    if state == states.REJECTED:
        if info.retval.requeue:
            raise RetryLater(timedelta(0), f"rejected: {info.retval.reason}")
        raise Reject(str(info.retval.reason))
    raise info.retval


def _check_not_expired(celery: Any, task: Any, id_: str, expires: str, stores: bool) -> None:
    if datetime.now(UTC) > parse_time("expires", expires, celery.timezone):
        task.backend.mark_as_revoked(id_, "expired", store_result=stores)
        raise Skip(f"it expired at {expires}")


class _WorkerSignals(Middleware):
    """Sends the signals that a Celery worker sends at the start and at the end of a process."""

    def __init__(self, celery: Any) -> None:
        self._celery = celery

    def startup(self, app: TaskApp) -> None:
        worker = SimpleNamespace(app=self._celery, hostname=_HOSTNAME, pool_cls="solo")
        signals.worker_init.send(sender=worker)
        self._celery.loader.init_worker_process()
        signals.worker_process_init.send(sender=_HOSTNAME)

    def shutdown(self, app: TaskApp) -> None:
        signals.worker_process_shutdown.send(sender=_HOSTNAME, pid=os.getpid(), exitcode=0)
