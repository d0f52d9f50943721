"""Runs the task that a message calls, and returns an `Outcome`. The caller settles the message on the server."""

import inspect
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec

from tickwheel import limits, tracing
from tickwheel.errors import ArgumentsRefused
from tickwheel.model.message import LeasedMessage
from tickwheel.model.validation import describe_duration, preview
from tickwheel.runtime.forked_child import end_forked_children
from tickwheel.runtime.log_fields import log_fields, log_message
from tickwheel.runtime.text_escape import cut_middle
from tickwheel.tasks.app import TaskApp
from tickwheel.tasks.exceptions import Expired, Reject, ResultNotStored, RetryLater, Skip, TimeLimitExceeded
from tickwheel.tasks.retry import NEVER
from tickwheel.tasks.run_context import CURRENT_RUN, STORED_ELSEWHERE, Outcome, Run
from tickwheel.tasks.signature import UNKNOWN, called_task, logged_name, read_envelope
from tickwheel.tasks.task import NAME_BYTES

_log = logging.getLogger("tickwheel.worker")
_NONE = "null"
# Runs an awaitable to its end. Raises TimeLimitExceeded if it takes longer than the limit, in seconds.
RunAwaitable = Callable[[Awaitable[Any], float], Any]
TimeLimit = Callable[[float], AbstractContextManager[None]]
OnPart = Callable[[float], None]
QueueMaximum = Callable[[str], int | None]


class Runner:
    """Runs the tasks of messages in the calling thread.

    ``run_awaitable`` runs async tasks to their end. ``time_limit`` returns a context manager that raises
    TimeLimitExceeded in its ``with`` block after the limit, in seconds; by default there is no limit for sync tasks.
    Exceptions for which ``ends_consumer`` is true, are raised by `run`; by default, there are none. With
    ``logs_failures``, errors of tasks are logged here; a worker logs them once the server has accepted the failure.
    ``queue_maximum`` returns the maximum of attempts that a queue sets, or None if it is unknown: then the outcome of
    the last attempt is final only if its message has a maximum of its own.
    """

    def __init__(
        self,
        app: TaskApp,
        run_awaitable: RunAwaitable,
        time_limit: TimeLimit = lambda seconds: nullcontext(),
        rng: random.Random | None = None,
        ends_consumer: Callable[[BaseException], bool] = lambda error: False,
        *,
        logs_failures: bool = True,
        queue_maximum: QueueMaximum = lambda queue: None,
    ) -> None:
        self._app = app
        self._logs_failures = logs_failures
        self._run_awaitable = run_awaitable
        self._time_limit = time_limit
        self._rng = random.Random() if rng is None else rng
        self._ends_consumer = ends_consumer
        self._queue_maximum = queue_maximum

    def run(
        self,
        message: LeasedMessage,
        is_lost: Callable[[], bool] = lambda: False,
        on_part: OnPart = lambda limit_s: None,
    ) -> Outcome:
        """Run the task of a message and return its outcome. Raises no error of the task, its arguments or middleware.

        A run has three parts: the code of the app that runs before the task, the task itself, and the code that runs
        after it. At the start of each part, ``on_part`` is called with the time limit, in seconds. It is not called if
        the app has no such task. ``is_lost`` returns whether the lease of the message is lost.
        """
        began = time.perf_counter()
        try:
            # A child that a task forks must not run the messages of its parent.
            with end_forked_children():
                return self._run(message, is_lost, on_part, began)
        except BaseException as error:
            if self._ends_consumer(error):
                raise
            # For example an error in the class of an argument, or a BaseException of a middleware. No message may stop
            # a consumer.
            name = called_task(message.payload, self._app.tasks)
            log_message(_log.exception, "task failed", message, "failed outside of its task", task=name)
            return Outcome(name, time.perf_counter() - began, error=truncate_utf8(describe_error(error)))

    def _run(self, message: LeasedMessage, is_lost: Callable[[], bool], on_part: OnPart, began: float) -> Outcome:
        name = UNKNOWN
        try:
            envelope = read_envelope(message.payload)
            # A payload can contain a name of any length. The name of a task is never longer than this.
            name = cut_middle(envelope.task, NAME_BYTES)
            task = self._app.tasks.get(envelope.task)
            if task is None:
                # Without the names of the tasks: every client of the queue can read the error.
                raise ArgumentsRefused(
                    f"this worker's app has no task {preview(name)}; number of its tasks: {len(self._app.tasks)}"
                )
            on_part(task.time_limit.total_seconds())
            run = Run(task, message, task.signature.read(envelope.args), is_lost)
        except ArgumentsRefused as error:
            # Fail with retries: during a deployment, workers of the old and of the new version run at the same time.
            log_message(_log.warning, "task refused", message, "%s", error, task=logged_name(name, self._app.tasks))
            outcome = Outcome(name, time.perf_counter() - began, error=truncate_utf8(str(error)))
            self._end_last_attempt(message, outcome)
            if outcome.final:
                self._app._on_refused(message)
            return outcome
        outcome = self._execute(run, on_part, began)
        on_part(task.time_limit.total_seconds())
        self._end_last_attempt(message, outcome)
        call_hook(self._app, "after_task", run, outcome)
        return outcome

    def _execute(self, run: Run, on_part: OnPart, began: float) -> Outcome:
        outcome = Outcome(run.task.name)
        token = CURRENT_RUN.set(run)
        try:
            with end_forked_children():
                for middleware in self._app.middleware:
                    middleware.before_task(run)
                with tracing.processing(run.message):
                    value = self._call(run, on_part)
            outcome.result = _encode_result(run, value)
            outcome._stored_result = _NONE if value is None else outcome.result
        except Expired as error:
            outcome._expired = str(error)
        except Skip:
            pass
        except Reject as error:
            outcome.error, outcome.final = truncate_utf8(f"rejected: {error}"), True
            outcome._is_deliberate = True
        except RetryLater as error:
            outcome.error, outcome.retry_in = truncate_utf8(str(error)), error.delay
            outcome._is_deliberate = True
        except TimeLimitExceeded as error:
            limit = describe_duration(run.task.time_limit)
            self._record_failure(run, outcome, f"over its time limit of {limit}", error)
        except ResultNotStored as error:
            # The text names the cause. The traceback has each attempt to store the result, and nothing of the task.
            run._is_error_logged = True
            self._record_failure(run, outcome, str(error), error)
        except (Exception, SystemExit) as error:
            self._record_failure(run, outcome, describe_error(error), error)
        finally:
            CURRENT_RUN.reset(token)
            run._has_ended = True
            outcome.seconds = time.perf_counter() - began
        return outcome

    def _record_failure(self, run: Run, outcome: Outcome, text: str, error: BaseException) -> None:
        retry = run.task.retry
        never = NEVER if retry is None else retry.never
        outcome.error, outcome.final = truncate_utf8(text), isinstance(error, never)
        if retry is not None and not outcome.final:
            outcome.retry_in = retry.delay(run.message.attempt, self._rng)
        if self._logs_failures:
            _log.warning(
                "%s %s/%s, attempt %d: %s",
                *(run.task.name, run.message.queue, run.message.id, run.message.attempt, text),
                exc_info=None if run._is_error_logged else error,
                extra=_task_fields(run, "task failed", error=text),
            )
        else:
            outcome._exception, outcome._is_error_logged = error, run._is_error_logged

    def _end_last_attempt(self, message: LeasedMessage, outcome: Outcome) -> None:
        """Make the outcome of a failed attempt final if the message has no attempts left."""
        if outcome.error is None or outcome.final:
            return
        maximum = message._max_attempts or self._queue_maximum(message.queue)
        if maximum is not None and message.attempt >= maximum:
            outcome.final = outcome._is_last_attempt = True
            outcome.retry_in = None

    def _call(self, run: Run, on_part: OnPart) -> Any:
        """Call the function of the task. If the function returns an awaitable, run the awaitable in the time left."""
        limit_s = run.task.time_limit.total_seconds()
        on_part(limit_s)
        ends = time.monotonic() + limit_s
        with self._time_limit(limit_s):
            value = run.task.function(**run.arguments)
        if value is not None and inspect.isawaitable(value):
            value = self._run_awaitable(value, ends - time.monotonic())
        return value


def call_hook(app: TaskApp, hook: str, *args: object) -> None:
    """Call a hook of all middleware, in the order that `Middleware` describes. An error is logged and suppressed."""
    for middleware in app.middleware if hook == "before_batch" else reversed(app.middleware):
        try:
            getattr(middleware, hook)(*args)
        except Exception:
            _log.exception("a middleware failed in %s; ignored", hook, extra=log_fields("middleware failed", hook=hook))


def truncate_utf8(text: str, max_bytes: int = limits.ERROR_BYTES) -> str:
    """Return the text, cut to ``max_bytes`` bytes of UTF-8: the server stores no more."""
    raw = text.encode(errors="replace")
    return raw.decode() if len(raw) <= max_bytes else raw[: max_bytes - 3].decode(errors="ignore") + "…"


def describe_error(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__}, whose text cannot be formatted"


def _encode_result(run: Run, value: Any) -> str | None:
    if value is None or value is STORED_ELSEWHERE:
        return None
    try:
        text = msgspec.json.encode(value).decode()
    except Exception as error:
        # The task has succeeded. A result that cannot be stored is no reason to run the task again.
        _log.warning(
            "%s %s/%s: its result is not stored: %s", run.task.name, run.message.queue, run.message.id, error,
            extra=_task_fields(run, "result not kept"),
        )  # fmt: skip
        return None
    if len(text.encode()) > limits.ERROR_BYTES:
        _log.warning(
            "%s %s/%s: its result is not stored: it has %d bytes, and at most %d are allowed",
            run.task.name, run.message.queue, run.message.id, len(text.encode()), limits.ERROR_BYTES,
            extra=_task_fields(run, "result not kept"),
        )  # fmt: skip
        return None
    return text


def _task_fields(run: Run, event: str, **more: str) -> dict[str, Any]:
    return log_fields(event, run.message, attempt=run.message.attempt, task=run.task.name, **more)
