"""Runs the tasks of a Celery app in a Tickwheel worker, with Celery's tracer: the function that runs a task in Celery.

So bound tasks, `self.request`, signals, handlers, autoretry and the result backend work as in a Celery worker.
`self.retry` fails the message, with the countdown of the retry as the back-off. An error that is not retried is final,
as in Celery.
"""

from asyncio import CancelledError
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, cast

from celery import signals, states
from celery.app import trace
from celery.backends.base import DisabledBackend
from celery.exceptions import (
    MaxRetriesExceededError,
    Reject as CeleryReject,
    SoftTimeLimitExceeded,
    TimeLimitExceeded as CeleryTimeLimitExceeded,
    WorkerLostError,
)
from kombu.utils.json import dumps, loads

from tickwheel import limits
from tickwheel.celery.carry_over import time_limit_of, why_not_declared
from tickwheel.celery.celery_message import parse_time, why_only_celery_can_run
from tickwheel.celery.failure_record import (
    NOT_RAISED,
    check_previous_run,
    is_cancelled,
    record_failure,
    record_revoked,
    runs_allowed,
    runs_of_message,
)
from tickwheel.celery.prefetch import may_wait, queues_without_prefetch
from tickwheel.celery.queue_names import allowed_names, own_tasks, queue_name, usual_queue_of_task
from tickwheel.celery.result_store import repeat_storing
from tickwheel.celery.revoked_calls import STOPPER, CallStopped, WaitingCalls
from tickwheel.celery.unknown_task import record_unknown_task
from tickwheel.celery.worker_signals import HOSTNAME, WorkerSignals
from tickwheel.errors import InvalidArgument
from tickwheel.runtime.foreign_data import decode_json
from tickwheel.tasks.app import TaskApp
from tickwheel.tasks.exceptions import Expired, Reject, ResultNotStored, RetryLater, Skip, TimeLimitExceeded
from tickwheel.tasks.retry import Retry
from tickwheel.tasks.run_context import STORED_ELSEWHERE, current
from tickwheel.tasks.runner import describe_error
from tickwheel.tasks.task_queue import MAX_BATCH, TaskQueue
from tickwheel.worker.time_limit import raise_after

# The tracer returns the outcome of a task, including errors and retries. If `_finish` raises the error of a task,
# Celery has decided not to retry the task, so Tickwheel must not retry it either.
_FINAL = Retry(never=(BaseException,))


@dataclass(slots=True)
class _CurrentCall:
    """The running call, and its request as Celery's tracer receives it.

    ``may_run_again`` is False in the last run that the task allows. ``retry_at`` is the time of the retry that the task
    has requested, or None, and ``refusal`` is the error of a retry that was refused. ``has_succeeded`` is True when the
    run has ended, and the task has raised no error. ``is_stored`` is True when its result is stored.
    """

    id: str
    retries: int
    arguments: list[Any]
    request: dict[str, Any]
    may_run_again: bool
    retry_at: datetime | None = None
    refusal: InvalidArgument | None = None
    has_succeeded: bool = False
    is_stored: bool = False

    @property
    def has_lost_result(self) -> bool:
        return self.has_succeeded and not self.is_stored


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
        call.refusal = InvalidArgument(
            f"task {call.id} was retried with other arguments: a message cannot be changed; call the task again instead"
        )
        raise call.refusal
    eta = message.headers.get("eta")
    call.retry_at = datetime.now(UTC) if eta is None else parse_time("eta", eta)
    return True


def is_running(id_: object) -> bool:
    """Return whether the calling code belongs to the run of the call with this id."""
    call = _current_call.get()
    return call is not None and call.id == id_


def declare(celery: Any, app: TaskApp, queues: Mapping[str, str]) -> None:
    """Declare the tasks and the queues of a Celery app in ``app``, without a request to a server.

    The Celery app loads its tasks as in a Celery worker. Tasks that ``app`` already has stay as they are. Tasks and
    queues that Tickwheel does not allow are left out: their calls stay with Celery. Raises InvalidArgument.
    """
    celery.loader.init_worker()
    celery.set_current()
    # For tasks in other threads, and for tasks of libraries (``shared_task``), which call each other through this.
    celery.set_default()
    tasks = [
        task for task in own_tasks(celery) if task.name not in app.tasks and why_not_declared(task, app, queues) is None
    ]
    queue_of = {task.name: queue_name(usual_queue_of_task(celery, task), queues, app) for task in tasks}
    batch, one_by_one = _batch_of(celery), queues_without_prefetch(tasks, queue_of)
    for queue in (*allowed_names(celery.amqp.queues, queues, app), *queue_of.values()):
        declare_queue(app, queue, 1 if queue in one_by_one else batch)
    celery_names = {tickwheel_name: celery_name for celery_name, tickwheel_name in queues.items()}
    for task in tasks:
        name, queue = task.name, queue_of[task.name]
        app._celery_tasks.add(name)
        function = _make_function(celery, app, task, celery_names)
        app.task(name=name, queue=queue, time_limit=time_limit_of(task), retry=_FINAL)(function)
    # Also in queues of which the worker takes several messages at a time: a call can name any queue.
    app._may_wait = partial(may_wait, celery.tasks, app.queues)
    app._on_refused = partial(record_unknown_task, celery, app)
    app.add_middleware(WorkerSignals(celery))
    app.add_middleware(WaitingCalls(celery, app))


def declare_named_queue(celery: Any, app: TaskApp, queues: Mapping[str, str], name: str) -> None:
    """Declare a queue that the command line of a worker names, as ``-Q`` does in Celery. Raises InvalidArgument."""
    if name in queues and name not in queues.values():
        raise InvalidArgument(f"Celery's queue {name!r} is the queue {queues[name]!r} here: name this one")
    declare_queue(app, queue_name(name, {}, app), _batch_of(celery))


def declare_queue(app: TaskApp, name: str, batch: int = TaskQueue.batch) -> None:
    """Declare the queue in the app, with the maximum payload limit, unless the app has declared the queue itself."""
    if name not in app.queues:
        app.queue(name, batch=batch, payload_limit=limits.PAYLOAD_BYTES_MAX)


def _batch_of(celery: Any) -> int:
    """Return how many messages a worker takes at once by default: as many as a process of Celery prefetches."""
    prefetched = int(celery.conf.worker_prefetch_multiplier or 0)
    return min(prefetched, MAX_BATCH) if prefetched > 0 else TaskQueue.batch


def _make_function(celery: Any, app: TaskApp, task: Any, celery_names: Mapping[str, str]) -> Callable[..., Any]:
    @cache
    def tracer() -> Callable[..., Any]:
        # As in Celery, the tracer is built in the worker: libraries such as Sentry may replace the function until then.
        return cast(Callable[..., Any], trace.build_tracer(task.name, task, hostname=HOSTNAME, app=celery))

    def run(headers: dict[str, Any], body: str, reply_to: str = "", priority: int | None = None) -> Any:
        message = current().message
        args, kwargs, embedded = loads(body)
        # Producers and imports keep such calls in Celery. But another program can enqueue any payload, and could
        # otherwise make Celery's tracer send any call to any queue of Celery.
        if reason := why_only_celery_can_run(headers, embedded or {}):
            raise Reject(reason)
        retries = int(headers.get("retries") or 0)
        runs = runs_allowed(task, retries)
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
            "retries": retries + message.attempt - 1,
            "hostname": HOSTNAME,
            "reply_to": reply_to,
            "correlation_id": message.id,
            "delivery_info": delivery,
            "args": args,
            "kwargs": kwargs,
            "is_eager": False,
            "lang": "py",
            # The caller may have hidden the arguments.
            "argsrepr": None,
            "kwargsrepr": None,
        }
        if message.attempt > 1:
            check_previous_run(app, message, task, request, min(runs, runs_of_message(app, message)))
        expires = headers.get("expires")
        if expires and datetime.now(UTC) > parse_time("expires", expires):
            record_revoked(task, request, "expired", expired=True)
            raise Expired(f"because it expired at {expires}")
        call = _CurrentCall(message.id, request["retries"], decode_json(body)[:2], request, message.attempt < runs)
        token = _current_call.set(call)
        try:
            value, info = _trace(tracer(), app, task, call)
        finally:
            _current_call.reset(token)
        return _finish(app, task, call, value, info)

    return run


def _trace(tracer: Callable[..., Any], app: TaskApp, task: Any, call: _CurrentCall) -> tuple[Any, Any]:
    """Run the task, and return its value and the tracer's information about its end, which is None after a success.

    If the tracer does not catch the error, record it as the failure of the call, and raise it.
    """
    request = call.request
    soft_limit = task.soft_time_limit or task.app.conf.task_soft_time_limit
    ended: tuple[Any, ...] | None = None
    repeat_storing(task.backend, app._is_stopping, _note_stored)
    try:
        with (
            STOPPER.watch(task, current()),
            raise_after(soft_limit, SoftTimeLimitExceeded) if soft_limit else nullcontext(),
        ):
            ended = tracer(call.id, request["args"], request["kwargs"], request)
    except SoftTimeLimitExceeded as error:
        # The tracer catches this error in the task. If it has returned, the task was over just in time.
        if ended is None and call.has_lost_result:
            raise _result_not_stored(error) from error
        if ended is None:
            record_failure(task, request, error)
            raise
    except CallStopped:
        # The program that revoked the call has stored the state, and sent the signal.
        raise Skip from None
    except TimeLimitExceeded as error:
        timeout_error = CeleryTimeLimitExceeded(current().task.time_limit.total_seconds())
        if call.has_lost_result:
            # The task has ended within its limit. What failed is the storing.
            raise _result_not_stored(timeout_error) from error
        record_failure(task, request, timeout_error, call_handlers=True)
        raise timeout_error from error
    except CeleryReject as error:
        # Of a handler such as ``on_success``, not of the task.
        return None, SimpleNamespace(state=states.REJECTED, retval=error)
    except Exception as error:
        if call.retry_at is not None:
            # Celery sends a retry before it stores the state, so the retry does not depend on the result backend.
            reason = f"retried, but this was not stored in the result backend: {describe_error(error)}"
            return None, SimpleNamespace(state=states.RETRY, retval=reason)
        if call.has_succeeded:
            raise _result_not_stored(error) from error
        record_failure(task, request, error)
        raise
    except (SystemExit, KeyboardInterrupt, CancelledError) as error:
        # In Celery, this error ends the worker process.
        lost_error = WorkerLostError(f"Worker exited prematurely: {error!r}.")
        record_failure(task, request, lost_error)
        raise lost_error from error
    assert ended is not None
    return ended[0], ended[1]


def _note_success(task_id: object = None, state: object = None, **_: Any) -> None:
    # The tracer sends the state of the task itself, whatever happened to its result.
    if state == states.SUCCESS and is_running(task_id):
        cast(_CurrentCall, _current_call.get()).has_succeeded = True


def _note_stored(task_id: str) -> None:
    if is_running(task_id):
        cast(_CurrentCall, _current_call.get()).is_stored = True


signals.task_postrun.connect(_note_success, weak=False)


def _result_not_stored(error: BaseException) -> ResultNotStored:
    return ResultNotStored(f"the task succeeded, but its result was not stored: {describe_error(error)}")


def _finish(app: TaskApp, task: Any, call: _CurrentCall, value: Any, info: Any) -> Any:
    """Convert the outcome of the tracer for `TaskApp`: return the task's value, or raise an exception."""
    state = states.SUCCESS if info is None else info.state
    # With ``self.retry(throw=False)``, the run ends in any state although the task has requested a retry.
    if state == states.RETRY or call.retry_at is not None or (state == states.REJECTED and info.retval.requeue):
        raise _run_again(app, task, call, state, getattr(info, "retval", None))
    if state == states.SUCCESS:
        # If Celery has a result backend, the backend has stored the value already.
        return value if isinstance(task.backend, DisabledBackend) else STORED_ELSEWHERE
    if state == states.IGNORED:
        raise Skip
    if state == states.REJECTED:
        record_failure(task, call.request, info.retval)
        if call.refusal is not None and info.retval.reason is call.refusal:
            # Celery rejects a call whose retry cannot be sent. The task has not chosen this end.
            raise call.refusal
        raise Reject(str(info.retval.reason))
    if call.has_succeeded:
        # The tracer has stored this error instead of the result: the backend answers again.
        raise _result_not_stored(info.retval) from info.retval
    raise info.retval


def _run_again(app: TaskApp, task: Any, call: _CurrentCall, state: str, value: Any) -> Exception:
    """Return the exception by which the message fails and is retried, or ends if it cannot be retried."""
    message = current().message
    if is_cancelled(app, message, current().is_lost()):
        record_revoked(task, call.request, "revoked")
        return Skip()
    if call.may_run_again and message.attempt < runs_of_message(app, message):
        wait = timedelta(0) if call.retry_at is None else max(call.retry_at - datetime.now(UTC), timedelta(0))
        if state == states.RETRY:
            return RetryLater(wait, str(value))
        return RetryLater(wait, NOT_RAISED if call.retry_at is not None else f"rejected: {value.reason}")
    if state == states.FAILURE:
        # The tracer has recorded the failure.
        return cast(Exception, value)
    # Celery decides by ``max_retries``. Only a call of ``self.retry`` with a greater number comes here, or a message
    # that has fewer attempts than its task needs.
    error = value if state == states.REJECTED else getattr(value, "exc", None)
    if not isinstance(error, Exception):
        reason = "the attempts of its message allow" if call.may_run_again else "its own max_retries allows"
        error = MaxRetriesExceededError(f"task {task.name} was retried {call.retries} times, and {reason} no more")
    record_failure(task, call.request, error)
    return Reject(str(value.reason)) if state == states.REJECTED else error
