"""Revoked calls in a worker: a call that waits there does not run, and a call revoked with ``terminate`` is stopped.

The supervisor of the worker notices at the next renewal of the lease that a message was cancelled. So a running call
stops at most a third of its lease after it was revoked (10 s by default): `CallStopped` is raised in its task. Native
code that does not return is not stopped.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from celery import states
from kombu.utils.json import loads

from tickwheel.celery.celery_message import decode_message, without_following_calls
from tickwheel.celery.failure_record import is_cancelled, record_revoked, stored_state
from tickwheel.model.message import LeasedMessage
from tickwheel.tasks.app import TaskApp
from tickwheel.tasks.exceptions import Skip
from tickwheel.tasks.middleware import Middleware
from tickwheel.tasks.run_context import Outcome, Run
from tickwheel.worker.time_limit import interruptible

_log = logging.getLogger("tickwheel.celery")
_TICK_S: Final = 0.25
# A revocation first cancels the message, and then stores the state. So the state of a call whose message is lost is
# read several times. The pauses between the reads double, up to this number of seconds.
_MAX_PAUSE_S: Final = 8.0
# A message that has waited in a worker for longer may have been cancelled there.
_FRESH_S: Final = 0.5


class CallStopped(BaseException):
    """Raised in a task whose call was revoked. No ``except Exception`` of the task catches it."""


@dataclass(slots=True, eq=False)
class _WatchedCall:
    """A running call. ``stop`` stops its task. If its lease is lost, its state is read next at ``read_at``.

    A lease that has run out can become good again (`Run.is_lost`). Then the call is watched as before.
    """

    task: Any
    run: Run
    stop: Callable[[], None]
    read_at: float = 0.0
    pause_s: float = _TICK_S

    def must_read(self, now: float) -> bool:
        """Return whether the state must be read now."""
        if not self.run.is_lost():
            self.read_at, self.pause_s = 0.0, _TICK_S
            return False
        return now >= self.read_at

    def wait(self, now: float) -> None:
        """Set the time of the next read. After the longest pause, there is none while the lease is lost."""
        self.read_at = now + self.pause_s if self.pause_s <= _MAX_PAUSE_S else math.inf
        self.pause_s *= 2


class Stopper:
    """Watches the running calls of a process, in a thread that starts with the first call."""

    def __init__(self) -> None:
        self._calls: dict[int, _WatchedCall] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        # Set while a call runs, so that the thread of an idle process sleeps.
        self._is_busy = threading.Event()

    @contextmanager
    def watch(self, task: Any, run: Run) -> Iterator[None]:
        """Raise CallStopped in the ``with`` block if the call is revoked with ``terminate``."""
        key = threading.get_ident()
        with interruptible(CallStopped) as stop:
            with self._lock:
                self._calls[key] = _WatchedCall(task, run, stop)
                self._is_busy.set()
                # A forked process has no thread.
                if self._thread is None or not self._thread.is_alive():
                    self._thread = threading.Thread(target=self._run, name="tickwheel-revocations", daemon=True)
                    self._thread.start()
            try:
                yield
            finally:
                with self._lock:
                    self._calls.pop(key, None)
                    if not self._calls:
                        self._is_busy.clear()

    def _run(self) -> None:
        while True:
            self._is_busy.wait()
            time.sleep(_TICK_S)
            now = time.monotonic()
            with self._lock:
                lost = [(key, call) for key, call in self._calls.items() if call.must_read(now)]
            for key, call in lost:
                if not _is_revoked(call.task, call.run.message.id):
                    call.wait(time.monotonic())
                    continue
                call.stop()
                with self._lock:
                    if self._calls.get(key) is call:
                        del self._calls[key]


def _is_revoked(task: Any, id_: str) -> bool:
    # A lease can also be lost because the host was too slow, or because the call was revoked without ``terminate``.
    # Then the task runs to its end.
    try:
        return bool(task.backend.get_task_meta(id_, cache=False)["status"] == states.REVOKED)
    except Exception as error:
        _log.warning("cannot read whether call %s of task %s was revoked: %s", id_, task.name, error)
        return False


STOPPER: Final = Stopper()


class WaitingCalls(Middleware):
    """Records the calls that were revoked while they waited in this process, after other calls of their batch."""

    def __init__(self, celery: Any, app: TaskApp) -> None:
        self._celery = celery
        self._app = app
        # By thread: the time at which the batch began, and its messages that did not run yet.
        self._batches: dict[int, tuple[float, dict[str, LeasedMessage]]] = {}

    def before_batch(self, queue: str, messages: Sequence[LeasedMessage]) -> None:
        self._batches[threading.get_ident()] = time.monotonic(), {message.id: message for message in messages}

    def before_task(self, run: Run) -> None:
        """Raise Skip if the call was revoked."""
        began, waiting = self._batches.get(threading.get_ident(), (time.monotonic(), {}))
        waiting.pop(run.message.id, None)
        if time.monotonic() - began > _FRESH_S and self._record(run.message):
            raise Skip

    def after_batch(self, queue: str, outcomes: Sequence[Outcome]) -> None:
        """Record the revoked calls among the messages that did not run: the worker had noticed that they were lost."""
        _, waiting = self._batches.pop(threading.get_ident(), (0.0, {}))
        for message in waiting.values():
            self._record(message)

    def _record(self, message: LeasedMessage) -> bool:
        """Return whether a call of Celery was revoked. Record this, unless the revoking program has done so."""
        request = request_of(message.id, message.payload)
        task = None if request is None else self._celery.tasks.get(request["task"])
        if request is None or task is None or not is_cancelled(self._app, message):
            return False
        if stored_state(task, request) != states.REVOKED:
            record_revoked(task, request, "revoked")
        return True


def request_of(id_: str, payload: bytes) -> dict[str, Any] | None:
    """Return the request of the Celery call in a message, or None if the message is another one.

    The request names no calls that follow: any program can enqueue a message that names some, and Celery's backends
    make the calls of a chord when they store the end of one of its members.
    """
    try:
        call = decode_message(payload)
        args, kwargs, _ = loads(call["args"]["body"])
        headers = without_following_calls(call["args"]["headers"])
        reply_to = str(call["args"].get("reply_to", ""))
        own = {"id": id_, "task": str(call["task"]), "args": args, "kwargs": kwargs, "reply_to": reply_to}
        return {**headers, **own, "correlation_id": id_}
    except Exception:
        # Any program can enqueue any payload, and the application can register types whose decoder raises any error.
        return None
