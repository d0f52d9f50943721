"""Tasks in a test: lists the calls that an app has sent, and runs them in the test's process when they are due."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tickwheel.client import Message, Tickwheel
from tickwheel.errors import QueueNotFound, TickwheelError
from tickwheel.model.message import MessageView
from tickwheel.tasks.app import TaskApp
from tickwheel.tasks.run_context import Outcome
from tickwheel.tasks.runner import Runner
from tickwheel.tasks.signature import read_envelope
from tickwheel.tasks.task import Task
from tickwheel.testing.virtual_clock import FRAGMENT, VirtualClock
from tickwheel.worker.async_runner import AsyncTaskLoop
from tickwheel.worker.schedule_runner import ScheduleRunner

_BATCH = 100
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

    def __init__(self, app: TaskApp, tickwheel: Tickwheel, clock: VirtualClock) -> None:
        self._app = app
        self._tickwheel = tickwheel
        self._clock = clock
        self._async_tasks = AsyncTaskLoop()
        self._runner = Runner(app, self._async_tasks.run)
        self._schedule_runner = ScheduleRunner(app)

    def sent(self, task: Task[..., Any] | None = None) -> list[SentTask]:
        """Return the calls that wait to run, the earliest due first. With ``task``, return only calls of that task.

        Calls that have run or were cancelled are not included.
        """
        sent_tasks = []
        for message in self._waiting():
            envelope = read_envelope(message.payload)
            if task is None or envelope.task == task.name:
                arguments = self._app.tasks[envelope.task].signature.read(envelope.args)
                sent_tasks.append(
                    SentTask(envelope.task, arguments, message.queue, message.id, message.due, message.metadata)
                )
        return sorted(sent_tasks, key=lambda sent_task: (sent_task.due, sent_task.id))

    def run_due(self) -> list[Outcome]:
        """Run all tasks that are due, and the tasks that these enqueue without a delay. Return the outcomes in order.

        The clock does not move. The first call starts the schedules. An error in a task fails the task, as in a
        worker, and is the ``error`` of its outcome. Raises TickwheelError after 100,000 runs.
        """
        self._clock.run_due()
        self._schedule_runner.ensure_occurrences(self._clock.now)
        self._clock.run_due()
        outcomes: list[Outcome] = []
        while messages := self._pending():
            for message in messages:
                outcomes.append(self._run(message))
                if len(outcomes) >= _MAX_RUNS:
                    raise TickwheelError(
                        f"{_MAX_RUNS} tasks have run, and more are due: check for tasks that enqueue each other"
                    )
            self._clock.run_due()
        return outcomes

    def advance(self, duration: timedelta) -> list[Outcome]:
        """Advance the clock, and run every task at its due time. Return the outcomes in order."""
        outcomes = self.run_due()
        self._clock.advance(duration, lambda: outcomes.extend(self.run_due()))
        return outcomes

    def _waiting(self) -> Iterator[MessageView]:
        existing = {queue.name for queue in self._tickwheel.queues()}
        for name in existing & self._app.queues.keys():
            for message in self._tickwheel.queue(name).messages():
                if message.state in ("invisible", "pending"):
                    yield message

    def _pending(self) -> list[Message]:
        while self._app.schedules and self._schedule_runner.fire_due():
            self._clock.run_due()
        for name in sorted(self._app.queues, key=lambda name: -self._app.queues[name].weight):
            try:
                if messages := self._tickwheel.queue(name).dequeue(_BATCH, worker="test"):
                    return messages
            except QueueNotFound:
                continue
        return []

    def _run(self, message: Message) -> Outcome:
        outcome = self._runner.run(message)
        if outcome.error is None:
            message.complete(outcome.result)
        else:
            message.fail(outcome.error, outcome.retry_in, final=outcome.final)
        return outcome


@contextmanager
def open_task_tester(app: TaskApp, tickwheel: Tickwheel, clock: VirtualClock) -> Iterator[TaskTester]:
    """Connect an app to a sandbox for the duration of the ``with`` block, and yield the tester that runs its tasks.

    As in a worker, the app's clients stay open until the end of the block, even if a task closes the app.
    """
    client_options = app.where
    settings = tickwheel._client_settings
    app.move(url=settings.url, namespace=settings.namespace, clock=FRAGMENT)
    tester = TaskTester(app, tickwheel, clock)
    try:
        with app._clients.keep_open(lambda: tester._async_tasks.loop):
            yield tester
    finally:
        app.move(**{"clock": "_clock", **client_options})
