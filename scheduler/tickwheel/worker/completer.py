"""Settles finished tasks on the server, in its own thread. Tasks that end during a call share the next call."""

import logging
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tickwheel.client import Message, Tickwheel
from tickwheel.errors import LeaseLost, QueueNotFound, TickwheelError
from tickwheel.operations.settle import FailedAttempt
from tickwheel.runtime.log_fields import log_fields
from tickwheel.tasks.run_context import Outcome
from tickwheel.worker.namespace_loss import NAMESPACE_ERRORS
from tickwheel.worker.shared_state import BatchState
from tickwheel.worker.task_log import TaskLog, report_bug

_log = logging.getLogger("tickwheel.worker")
_MAX_TASKS = 250
# After the end of a task, how long to wait for other tasks of its batch to end, so that very short tasks share a call.
_GATHER_S = 0.0005


@dataclass(slots=True)
class UnsettledBatch:
    """A batch, and the number of its messages that are not settled yet."""

    state: BatchState
    unsettled: int


@dataclass(slots=True)
class FinishedTask:
    """A message and the outcome of its task.

    If ``outcome`` is None, the task was not started: the message is released.
    """

    batch: UnsettledBatch
    message_index: int
    message: Message
    outcome: Outcome | None


class Completer:
    """Settles the tasks passed to `put`, and then logs each outcome in ``log``."""

    def __init__(self, tickwheel: Tickwheel, log: TaskLog) -> None:
        self.log = log
        self._tickwheel = tickwheel
        self._finished: queue.SimpleQueue[FinishedTask | None] = queue.SimpleQueue()
        self._settled = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="tickwheel-finisher", daemon=True)
        self._thread.start()

    def put(self, task: FinishedTask) -> None:
        self._finished.put(task)

    def wait(self, batch: UnsettledBatch) -> None:
        """Wait until all messages of the batch are settled."""
        if batch.unsettled:
            with self._settled:
                self._settled.wait_for(lambda: not batch.unsettled)

    def settle(self, batch: UnsettledBatch, message_index: int) -> None:
        """Mark a message as settled without a call to the server."""
        batch.state.settle(message_index)
        self._count_settled([batch])

    def close(self) -> None:
        """Stop the thread, once all tasks passed to `put` are settled."""
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
            # Of two queues with the same name, the older one was deleted, and the calls for its messages fail.
            by_queue = defaultdict[tuple[str, int], list[FinishedTask]](list)
            for task in tasks:
                if task is not None:
                    by_queue[task.message.queue, task.message._queue_number].append(task)
            for (name, _), queue_tasks in by_queue.items():
                try:
                    self._settle_queue(name, queue_tasks)
                except Exception as error:
                    # This is a bug. The messages are delivered again when their leases end. If this thread ended, the
                    # consumers would wait for it indefinitely, and their leases would be renewed meanwhile.
                    report_bug(error)
                finally:
                    for task in queue_tasks:
                        task.batch.state.settle(task.message_index)
                    self._count_settled([task.batch for task in queue_tasks])

    def _settle_queue(self, name: str, tasks: list[FinishedTask]) -> None:
        target = self._tickwheel.queue(name)
        completed = [task for task in tasks if task.outcome is not None and task.outcome.error is None]
        if completed:
            messages = [task.message for task in completed]
            results = [None if task.outcome is None else task.outcome._stored_result for task in completed]
            complete = partial(target.complete_many, messages, results)
            self.log.completed(self._settle("complete", completed, complete))
        unstarted = [task for task in tasks if task.outcome is None]
        if unstarted:
            release = partial(target.release_many, [task.message for task in unstarted])
            self.log.released(self._settle("release", unstarted, release))
        for task in tasks:
            if (outcome := task.outcome) is not None and outcome.error is not None:
                self._fail(task, outcome)

    def _count_settled(self, batches: list[UnsettledBatch]) -> None:
        """Count one settled message for each item of ``batches``."""
        with self._settled:
            for batch in batches:
                batch.unsettled -= 1
            self._settled.notify_all()

    def _fail(self, task: FinishedTask, outcome: Outcome) -> None:
        tickwheel, answers = self._tickwheel, list[FailedAttempt]()

        def fail() -> None:
            plan = tickwheel._backend.fail(task.message, outcome.error, outcome.retry_in, outcome._ends_retries)
            answers.append(tickwheel._run(plan))

        if self._settle("fail", [task], fail):
            self.log.failed(task, answers[0])
        # The error refers to the variables of the task.
        outcome._exception = None

    def _settle(self, action: str, tasks: list[FinishedTask], call: Callable[[], object]) -> list[FinishedTask]:
        """Settle tasks by a call. Return those that the server has accepted, and log all others."""
        try:
            call()
        except LeaseLost as error:
            lost = set(map(id, error.lost))
            self.log.lost([task for task in tasks if id(task.message) in lost])
            return [task for task in tasks if id(task.message) not in lost]
        except QueueNotFound as error:
            self.log.lost(tasks, str(error))
        except NAMESPACE_ERRORS:
            # The consumers notice this, too, and report it.
            self.log.lost(tasks, "its namespace no longer exists")
        except TickwheelError as error:
            # The client has retried until its timeout. When the leases end, the messages are delivered again.
            _log.error("could not %s messages: %s", action, error, extra=log_fields("not told", call=action))
            self.log.unconfirmed(tasks)
        except Exception:
            _log.exception("could not %s messages", action, extra=log_fields("not told", call=action))
            self.log.unconfirmed(tasks)
        else:
            return tasks
        return []
