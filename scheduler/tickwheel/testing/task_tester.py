"""Tasks in a test: lists the calls that an app has sent, and runs them in the test's process when they are due."""

import logging
from asyncio import CancelledError
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any

from tickwheel.client import Message, Tickwheel
from tickwheel.errors import (
    ArgumentsRefused,
    LeaseLost,
    MessageNotFound,
    QueueBlocked,
    QueueNotFound,
    TickwheelError,
)
from tickwheel.model.message import MessageView
from tickwheel.model.validation import Duration
from tickwheel.runtime.log_fields import log_message
from tickwheel.tasks.app import TaskApp
from tickwheel.tasks.run_context import Outcome
from tickwheel.tasks.runner import Runner
from tickwheel.tasks.signature import read_envelope
from tickwheel.tasks.task import Task
from tickwheel.testing.virtual_clock import FRAGMENT, VirtualClock
from tickwheel.worker.async_runner import AsyncTaskLoop
from tickwheel.worker.queue_maximum import QueueMaximum
from tickwheel.worker.schedule_runner import ScheduleRunner

_log = logging.getLogger("tickwheel.worker")
# Without this maximum, tasks that enqueue each other with no delay would run indefinitely.
_MAX_RUNS = 100_000


@dataclass(frozen=True, slots=True)
class SentTask:
    """A call of a task that waits to run."""

    task: str
    arguments: dict[str, Any]
    queue: str
    id: str
    due: datetime
    metadata: dict[str, str]


class TaskTester:
    """Runs the tasks of an app in the calling thread.

    Only the middleware hooks ``before_task`` and ``after_task`` are called. Only async tasks have time limits.
    """

    def __init__(self, app: TaskApp, tickwheel: Tickwheel, clock: VirtualClock, *, schedules: bool = True) -> None:
        """If ``schedules`` is False, the schedules of the app start no task."""
        self._app = app
        self._tickwheel = tickwheel
        self._clock = clock
        self._async_tasks = AsyncTaskLoop()
        self._runner = Runner(
            app, self._async_tasks.run, ends_consumer=_ends_test, queue_maximum=QueueMaximum(tickwheel)
        )
        self._schedule_runner = ScheduleRunner(app) if schedules else None

    def sent(self, task: Task[..., Any] | None = None) -> list[SentTask]:
        """Return the calls that wait to run, the earliest due first. With ``task``, return only calls of that task.

        Calls that have run or were cancelled are not included. Messages that do not call a task of the app with
        arguments that fit the task are not included either. `run_due` fails them, as a worker does.
        """
        sent_tasks = [
            sent_task
            for message in self._waiting()
            if (sent_task := self._read_call(message)) is not None and (task is None or sent_task.task == task.name)
        ]
        return sorted(sent_tasks, key=lambda sent_task: (sent_task.due, sent_task.id))

    def run_due(self) -> list[Outcome]:
        """Run all tasks that are due, and the tasks that these enqueue without a delay. Return the outcomes in order.

        The clock does not move. The first call starts the schedules. An error in a task fails the task, as in a
        worker, and is the ``error`` of its outcome. A task that was cancelled before it began does not run. If a task
        was cancelled while it ran, its outcome is returned, but the message stays cancelled. Queues that are blocked
        for dequeue are skipped. Raises TickwheelError after 100,000 runs.
        """
        self._clock.run_due()
        if self._schedule_runner is not None:
            with suppress(QueueBlocked):
                self._schedule_runner.ensure_occurrences(self._clock.now)
            self._clock.run_due()
        outcomes: list[Outcome] = []
        while self._run_turn(outcomes):
            self._clock.run_due()
        return outcomes

    def advance(self, duration: Duration) -> list[Outcome]:
        """Advance the clock, and run every task at its due time. Return the outcomes in order.

        The call takes as long as the tasks, about 30 ms for each run of a schedule, too.
        ``duration`` is rounded down to the millisecond.
        """
        outcomes = self.run_due()
        self._clock.advance(duration, lambda: outcomes.extend(self.run_due()))
        return outcomes

    def _waiting(self) -> Iterator[MessageView]:
        existing = {queue.name for queue in self._tickwheel.queues()}
        for name in existing & self._app.queues.keys():
            for message in self._tickwheel.queue(name).messages():
                if message.state in ("invisible", "pending"):
                    yield message

    def _read_call(self, message: MessageView) -> SentTask | None:
        """Return the call of a task that a message is, or None if the message is no such call."""
        try:
            envelope = read_envelope(message.payload)
            if (task := self._app.tasks.get(envelope.task)) is None:
                return None
            arguments = task.signature.read(envelope.args)
        except ArgumentsRefused:
            return None
        return SentTask(task.name, arguments, message.queue, message.id, message.due, message.metadata)

    def _run_turn(self, outcomes: list[Outcome]) -> bool:
        """Fire the due schedules, and run a turn of the first queue by weight that has messages. Append the outcomes.

        Return whether a queue had messages.
        """
        # A test may declare schedules at any time.
        if self._schedule_runner is not None and self._app.schedules:
            with suppress(QueueBlocked):
                while self._schedule_runner.fire_due():
                    self._clock.run_due()
        earlier = len(outcomes)
        for queue in sorted(self._app.queues.values(), key=lambda queue: -queue.weight):
            for message in islice(iter(partial(self._take, queue.name), None), queue.iterations * queue.batch):
                outcomes.append(self._run(message))
                if len(outcomes) >= _MAX_RUNS:
                    raise TickwheelError(
                        f"{_MAX_RUNS} tasks have run, and more are due: check for tasks that enqueue each other"
                    )
            if len(outcomes) > earlier:
                return True
        return False

    def _take(self, queue: str) -> Message | None:
        # Only one message, because its task can cancel or reschedule the messages that would run after it.
        with suppress(QueueBlocked, QueueNotFound):
            for message in self._tickwheel.queue(queue).dequeue(worker="test"):
                return message
        return None

    def _run(self, message: Message) -> Outcome:
        outcome = self._runner.run(message, lambda: self._is_lost(message))
        try:
            if outcome.error is None:
                # A call with results wakes the calls that wait for the message, as a call of a worker does.
                self._tickwheel.queue(message.queue).complete_many([message], [outcome._stored_result])
            else:
                message.fail(outcome.error, outcome.retry_in, final=outcome._ends_retries)
        except (LeaseLost, QueueNotFound):
            # For example, the task has cancelled or settled its own message, or deleted the queue.
            log_message(_log.warning, "lease lost", message, "its outcome is discarded, as its lease was lost")
        return outcome

    def _is_lost(self, message: Message) -> bool:
        # A worker notices a lost lease when it renews the lease. Here, the clock stands still while a task runs.
        try:
            view = self._tickwheel.queue(message.queue).get(message.id, message.exclusive_value)
        except (MessageNotFound, QueueNotFound):
            return True
        return view.state != "running" or view.attempt != message.attempt


def _ends_test(error: BaseException) -> bool:
    """Return whether an exception is none of a task but, for example, Ctrl-C, or the timeout of a test runner."""
    return not isinstance(error, Exception | SystemExit | CancelledError)


@contextmanager
def open_task_tester(
    app: TaskApp, tickwheel: Tickwheel, clock: VirtualClock, *, schedules: bool = True
) -> Iterator[TaskTester]:
    """Connect an app to a sandbox for the duration of the ``with`` block, and yield the tester that runs its tasks.

    As in a worker, the functions that `TaskApp.on_load` has registered are called, and the app's clients stay open
    until the end of the block, even if a task closes the app. At the end of the block, the asyncio tasks that the tasks
    have left behind are cancelled.
    """
    app.load()
    client_options = app.where
    settings = tickwheel._client_settings
    app.move(url=settings.url, namespace=settings.namespace, clock=FRAGMENT)
    tester = TaskTester(app, tickwheel, clock, schedules=schedules)
    try:
        # The loop is closed before the app has its own URL again. Otherwise an asyncio task that was left behind could
        # reach the real system.
        with closing(tester._async_tasks), app._clients.keep_open(lambda: tester._async_tasks.loop):
            try:
                yield tester
            finally:
                # Before the clients are closed, which the tasks may need to end.
                tester._async_tasks.cancel_tasks()
    finally:
        app.move(**{"clock": "_clock", **client_options})
