"""Tasks in a test: what an app has sent is looked at, and run in the test's process, when it is due by its clock."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tickwheel.client import Message, Tickwheel
from tickwheel.errors import QueueNotFound, TickwheelError
from tickwheel.model.message import MessageView
from tickwheel.tasks.app import TaskApp
from tickwheel.tasks.run import Outcome
from tickwheel.tasks.runner import Runner
from tickwheel.tasks.signature import read_envelope
from tickwheel.tasks.task import Task
from tickwheel.testing.virtual_clock import FRAGMENT, VirtualClock
from tickwheel.worker.async_runner import AsyncTaskLoop
from tickwheel.worker.schedule_runner import ScheduleRunner

_BATCH = 100
# Tasks that send each other on at once have no end.
_MAX_RUNS = 100_000


@dataclass(frozen=True, slots=True)
class SentTask:
    """A call that waits to run."""

    task: str
    arguments: dict[str, Any]
    queue: str
    id: str
    due: datetime
    metadata: dict[str, str]


class TaskTester:
    """Runs the tasks of an app in the calling thread. Middleware is called as in a worker; time limits are not kept."""

    def __init__(self, app: TaskApp, tickwheel: Tickwheel, clock: VirtualClock) -> None:
        self._app = app
        self._tickwheel = tickwheel
        self._clock = clock
        self._runner = Runner(app, AsyncTaskLoop().run)
        self._schedule_runner = ScheduleRunner(app)

    def sent(self, task: Task[..., Any] | None = None) -> list[SentTask]:
        """What was sent and has neither run nor been cancelled, of one task if asked: the earliest due first."""
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
        """Run all that is due, and what that sends for now in turn; how each ended, in order. The clock stands still.
        Schedules fire, from the first call on.

        An error in a task fails it, as in a worker, and is its outcome's ``error``.
        """
        self._clock.run_due()
        self._schedule_runner.ensure_occurrences(self._clock.now)
        outcomes: list[Outcome] = []
        while messages := self._pending():
            for message in messages:
                outcomes.append(self._run(message))
                if len(outcomes) >= _MAX_RUNS:
                    raise TickwheelError(f"{_MAX_RUNS} tasks have run, and there are more: do they send each other?")
            self._clock.run_due()
        return outcomes

    def advance(self, duration: timedelta) -> list[Outcome]:
        """Let time pass: every task runs when it is due. How each ended, in order."""
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
    """Have an app send to a sandbox, and run there what it has sent, until this ends."""
    client_options = app.where
    settings = tickwheel._client_settings
    app.move(url=settings.url, namespace=settings.namespace, clock=FRAGMENT)
    try:
        yield TaskTester(app, tickwheel, clock)
    finally:
        app.move(**{"clock": "_clock", **client_options})
