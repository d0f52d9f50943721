"""One lane of a worker process: selects a queue, takes a batch, runs its tasks one by one, and so on."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial

from tickwheel.client import Message
from tickwheel.errors import LeaseLost, QueueBlocked, QueueNotFound, TickwheelError
from tickwheel.runtime.log_fields import fields
from tickwheel.tasks.app import TaskApp
from tickwheel.tasks.queue_selectors import QueueSelector, selected
from tickwheel.tasks.runner import Outcome, Runner, after_batch, before_batch
from tickwheel.tasks.task_queue import TaskQueue
from tickwheel.worker.completer import Batch, Ended, Finisher
from tickwheel.worker.ipc import Held, HeldMessage, Note, Notes, Ran, RanTask
from tickwheel.worker.shared_state import PAGES, Page, Slot

_log = logging.getLogger("tickwheel.worker")
# How long a call waits at most: so soon a lane that waits hears that it is to stop.
_SLICE = timedelta(seconds=1)
_PAUSE_S = 1.0
_TELL_S = 1.0
# For figures, of what is no task of the app.
UNKNOWN = "(unknown)"


class Lane:
    """``stopping`` ends it after the task that runs; what it has not begun is given back."""

    def __init__(
        self,
        app: TaskApp,
        selector: QueueSelector[TaskQueue],
        runner: Runner,
        finisher: Finisher,
        notes: Notes,
        pages: list[Page],
        first_page: int,
        stopping: threading.Event,
        worker: str,
        between: Callable[[], None],
    ) -> None:
        """``between`` is called after each batch."""
        self._app = app
        self._selector = selector
        self._runner = runner
        self._finisher = finisher
        self._notes = notes
        self._pages = pages
        self._first_page = first_page
        self._stopping = stopping
        self._worker = worker
        self._between = between
        self._number = 0
        self._batches = [Batch(page, 0) for page in pages]
        # What the selector has asked about, and so has been taken.
        self._taken: dict[str, list[Message]] = {}
        # What the supervisor is told with the next batch, as soon as there is none, or after this time.
        self._untold: list[Ran] = []
        self._tell_at = 0.0

    def run(self) -> None:
        """Until it is to stop. Returns once the server knows of all that it had."""
        try:
            while not self._stopping.is_set():
                try:
                    self._turn(selected(self._selector, self._has_work))
                except TickwheelError as error:
                    _log.error("no messages can be taken: %s", error, extra=fields("nothing taken"))
                    self._stopping.wait(_PAUSE_S)
        except BaseException:
            # Of the app's selector or middleware. What is taken is given back below.
            self._stopping.set()
            raise
        finally:
            for messages in self._taken.values():
                self._run_batch(messages)
            for batch in self._batches:
                self._finisher.wait(batch)
            self._tell()

    def _turn(self, queue: TaskQueue) -> None:
        """Some batches of one queue; an empty one ends it early."""
        for name in self._taken.keys() - {queue.name}:
            # A selector asked about several and chose another. Nobody would renew their leases until their turn.
            with suppress(LeaseLost):
                self._app.tickwheel.queue(name).release_many(self._taken.pop(name))
        messages = self._taken.pop(queue.name, None) or self._wait(queue)
        for n in range(queue.iterations):
            if n:
                messages = self._take(queue)
            if not messages:
                return
            self._run_batch(messages)
            if self._stopping.is_set():
                return

    def _has_work(self, queue: TaskQueue) -> bool:
        if queue.name not in self._taken and not self._stopping.is_set() and (messages := self._take(queue)):
            self._taken[queue.name] = messages
        return queue.name in self._taken

    def _wait(self, queue: TaskQueue) -> list[Message]:
        self._tell()
        ends = time.monotonic() + queue.long_poll.total_seconds()
        while not self._stopping.is_set() and (left := ends - time.monotonic()) > 0:
            if messages := self._take(queue, min(_SLICE, timedelta(seconds=left))):
                return messages
        return []

    def _take(self, queue: TaskQueue, wait: timedelta | None = None) -> list[Message]:
        try:
            return self._app.tickwheel.queue(queue.name).dequeue(queue.batch, wait=wait, worker=self._worker)
        except (QueueBlocked, QueueNotFound):
            # Nothing to take there, now; it may be there, or unblocked, soon.
            if wait is not None:
                self._stopping.wait(wait.total_seconds())
            return []

    def _run_batch(self, messages: list[Message]) -> None:
        index, queue = self._number % PAGES, messages[0].queue
        self._number += 1
        self._finisher.wait(self._batches[index])
        page = self._pages[index]
        # The note first: until the page has its number, the supervisor takes no notice of it.
        batch = self._batches[index] = Batch(page, len(messages))
        self._tell(Held(self._first_page + index, self._number, list(map(_held, messages))))
        page.begin(self._number, len(messages))
        self._run_each(queue, page, batch, messages)
        self._between()

    def _run_each(self, queue: str, page: Page, batch: Batch, messages: list[Message]) -> None:
        left = iter(list(enumerate(messages)))
        try:
            before_batch(self._app, queue, messages)
            self._run_all(queue, page, batch, left)
        finally:
            # Where something of the app's got through, there are some.
            for slot, message in left:
                self._finisher.put(Ended(batch, slot, message, None))

    def _run_all(self, queue: str, page: Page, batch: Batch, left: Iterator[tuple[int, Message]]) -> None:
        ran: list[RanTask] = []
        outcomes: list[Outcome] = []
        for slot, message in left:
            if page.is_lost(slot):
                extra = fields("lease lost", message, attempt=message.attempt)
                _log.info("%s/%s: cancelled, or its lease was lost, before it began", queue, message.id, extra=extra)
                self._finisher.settle(batch, slot)
            elif self._stopping.is_set():
                self._finisher.put(Ended(batch, slot, message, None))
            else:
                began = time.time()
                outcome = self._runner.run(message, partial(page.is_lost, slot), partial(page.start, slot))
                page.end(slot, Slot.DONE if outcome.error is None else Slot.FAILED)
                outcomes.append(outcome)
                self._finisher.put(Ended(batch, slot, message, outcome))
                # Messages may name anything.
                name = outcome.task if outcome.task in self._app.tasks else UNKNOWN
                ran.append(RanTask(name, _kind(outcome), began - message._due_ms / 1_000, outcome.seconds))
                if began + outcome.seconds > self._tell_at:
                    self._tell(Ran(queue, ran))
                    ran = []
        after_batch(self._app, queue, outcomes)
        if ran:
            self._untold.append(Ran(queue, ran))

    def _tell(self, *notes: Note) -> None:
        if self._untold or notes:
            self._notes.send(*self._untold, *notes)
            self._untold.clear()
            self._tell_at = time.time() + _TELL_S


def _held(message: Message) -> HeldMessage:
    name = message.queue, message._queue_number, message.id, message.exclusive_value
    return HeldMessage(*name, message.token, message.attempt, message._lease_ms / 1_000)


def _kind(outcome: Outcome) -> str:
    if outcome.error is None:
        return "completed"
    return "rejected" if outcome.final else "failed"
