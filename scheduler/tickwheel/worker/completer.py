"""Tells the server how tasks ended, in a thread of its own: what ends while a call is under way goes with the next."""

import logging
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from tickwheel.client import Message, Tickwheel
from tickwheel.errors import LeaseLost, TickwheelError
from tickwheel.runtime.log_fields import log_fields
from tickwheel.tasks.run_context import Outcome
from tickwheel.worker.shared_state import BatchState

_log = logging.getLogger("tickwheel.worker")
_MAX_TASKS = 250
# So long is a batch waited for whose first task has ended: tasks that take next to no time go together then.
_GATHER_S = 0.0005


@dataclass(slots=True)
class UnsettledBatch:
    """A page's messages that the server has not been told of."""

    state: BatchState
    unsettled: int


@dataclass(slots=True)
class FinishedTask:
    """A message, and how its task ended; None where it was not begun and is given back."""

    batch: UnsettledBatch
    message_index: int
    message: Message
    outcome: Outcome | None


class Completer:
    """`put` what has ended, `wait` for a batch. A lease that was lost is logged: somebody else has the message now."""

    def __init__(self, tickwheel: Tickwheel) -> None:
        self._tickwheel = tickwheel
        self._finished: queue.SimpleQueue[FinishedTask | None] = queue.SimpleQueue()
        self._settled = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="tickwheel-finisher", daemon=True)
        self._thread.start()

    def put(self, task: FinishedTask) -> None:
        self._finished.put(task)

    def wait(self, batch: UnsettledBatch) -> None:
        """Until the server knows of all of the batch."""
        if batch.unsettled:
            with self._settled:
                self._settled.wait_for(lambda: not batch.unsettled)

    def settle(self, batch: UnsettledBatch, message_index: int) -> None:
        """A message of which the server need not be told."""
        batch.state.settle(message_index)
        self._count_settled([batch])

    def close(self) -> None:
        """Once all has been told."""
        self._finished.put(None)
        self._thread.join()

    def _run(self) -> None:
        running = True
        while running:
            tasks = [self._finished.get()]
            if tasks[0] is not None and tasks[0].batch.unsettled > self._finished.qsize() + 1:
                time.sleep(_GATHER_S)
            while len(tasks) < _MAX_TASKS and not self._finished.empty():
                tasks.append(self._finished.get())
            running = None not in tasks
            by_queue = defaultdict[str, list[FinishedTask]](list)
            for task in tasks:
                if task is not None:
                    by_queue[task.message.queue].append(task)
            for name, queue_tasks in by_queue.items():
                self._settle_queue(name, queue_tasks)

    def _settle_queue(self, name: str, tasks: list[FinishedTask]) -> None:
        target = self._tickwheel.queue(name)
        completed = [
            (task.message, task.outcome.result) for task in tasks if task.outcome and task.outcome.error is None
        ]
        if completed:
            messages, results = zip(*completed, strict=True)
            self._report("complete", lambda: target.complete_many(messages, results))
        unstarted = [task.message for task in tasks if task.outcome is None]
        if unstarted:
            self._report("release", lambda: target.release_many(unstarted))
        for task in tasks:
            if task.outcome is not None and task.outcome.error is not None:
                self._fail(task.message, task.outcome)
        for task in tasks:
            task.batch.state.settle(task.message_index)
        self._count_settled([task.batch for task in tasks])

    def _count_settled(self, batches: list[UnsettledBatch]) -> None:
        """One message of each."""
        with self._settled:
            for batch in batches:
                batch.unsettled -= 1
            self._settled.notify_all()

    def _fail(self, message: Message, outcome: Outcome) -> None:
        self._report("fail", lambda: message.fail(outcome.error, outcome.retry_in, final=outcome.final))

    def _report(self, action: str, call: Callable[[], object]) -> None:
        try:
            call()
        except LeaseLost as error:
            for message in error.lost:
                extra = log_fields("lease lost", message, attempt=message.attempt)
                _log.warning(
                    "%s/%s: too late to %s it: its lease was lost", message.queue, message.id, action, extra=extra
                )
        except TickwheelError as error:
            # The client has gone on trying for as long as it may. The leases end, and the messages come again.
            _log.error("could not %s: %s", action, error, extra=log_fields("not told", call=action))
        except Exception:
            _log.exception("could not %s", action, extra=log_fields("not told", call=action))
