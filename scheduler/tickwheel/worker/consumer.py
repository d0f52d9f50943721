"""The consumer of a worker process: selects a queue, takes a batch, runs its tasks one by one, and repeats."""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from itertools import compress

from tickwheel.client import Message, Tickwheel
from tickwheel.errors import QueueBlocked, QueueNotFound, TickwheelError, Unavailable
from tickwheel.model.validation import as_timedelta
from tickwheel.operations.dequeue_options import DequeueOptions
from tickwheel.operations.several_queues.dequeue_several import SeveralQueues
from tickwheel.runtime.log_fields import log_fields, log_message
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.tasks.app import TaskApp
from tickwheel.tasks.run_context import Outcome
from tickwheel.tasks.runner import Runner, call_hook
from tickwheel.tasks.task_queue import TaskQueue
from tickwheel.worker.blocked_queues import QueueBlocks
from tickwheel.worker.completer import Completer, FinishedTask, UnsettledBatch
from tickwheel.worker.early_release import LONGEST_WAIT_S, WaitingMessages
from tickwheel.worker.ipc import BatchFinished, BatchTaken, MessageLease, Report, ReportWriter, TaskRun
from tickwheel.worker.namespace_loss import NAMESPACE_ERRORS, report_namespace_loss
from tickwheel.worker.selectors import QueueSelector
from tickwheel.worker.shared_state import BATCHES_PER_CONSUMER, BatchState, MessageState
from tickwheel.worker.stats import UNKNOWN

_log = logging.getLogger("tickwheel.worker")
# For all consumers of the process.
_log_throttle = LogThrottle()
_queue_blocks = QueueBlocks()
# The maximum wait of one dequeue call, so that a waiting consumer notices a stop request in time.
_MAX_WAIT = timedelta(seconds=1)
_PAUSE_S = 1.0
_REPORT_INTERVAL_S = 1.0


class Consumer:
    """Runs tasks in the calling thread until ``stopping`` is set.

    Then the consumer finishes the running task and releases the messages that it has not started.
    """

    def __init__(
        self,
        app: TaskApp,
        tickwheel: Tickwheel,
        selector: QueueSelector[TaskQueue],
        runner: Runner,
        completer: Completer,
        waiting: WaitingMessages,
        reports: ReportWriter,
        batch_states: list[BatchState],
        first_batch_index: int,
        stopping: threading.Event,
        worker: str,
        on_batch_end: Callable[[], None],
        mark_round: Callable[[float], None] = lambda at: None,
    ) -> None:
        """``waiting`` holds the messages of a batch whose tasks have not begun. ``batch_states`` are the places in
        shared memory for the progress of this consumer's batches. The first of them has the index
        ``first_batch_index`` among the places of the process (see `shared_state`). ``worker`` is the name that is
        stored with leased messages. ``on_batch_end`` is called after each batch. ``mark_round`` is called with the
        monotonic time when the consumer comes round, and with 0 before a wait for the completer.
        """
        self._app = app
        self._tickwheel = tickwheel
        self._runner = runner
        self._completer = completer
        self._waiting = waiting
        self._reports = reports
        self._batch_states = batch_states
        self._first_batch_index = first_batch_index
        self._stopping = stopping
        self._worker = worker
        self._on_batch_end = on_batch_end
        self._mark_round = mark_round
        self._number = 0
        self._batches = [UnsettledBatch(state, 0) for state in batch_states]
        # The options of the next dequeue of each queue. Their limit adapts to the duration of the tasks. If the
        # selector asks whether a queue has work, a batch of the queue is leased for the answer.
        # A consumer that starts, or has waited, takes one message: other consumers may be idle, too, so that messages
        # which become deliverable at the same time begin at the same time.
        one = DequeueOptions.parse(1, worker=worker)
        self._options = {queue.name: one for queue in selector.queues}
        self._queues = SeveralQueues(
            self._options,
            selector.select_queue,
            Message,
            self._observe,
            _log_unreleased,
            dict(self._options),
        )
        # The wait for all queues is at most as long as the longest one that a queue allows.
        self._max_wait = min(_MAX_WAIT, max(as_timedelta(queue.long_poll) for queue in selector.queues)).total_seconds()
        # Whether the last dequeue of a turn has found nothing.
        self._found_nothing = False
        self._waits_for_all = len(selector.queues) > 1 and self._max_wait > 0
        # Reports for the supervisor. They are sent with the next batch, before a wait, or after `_report_at`.
        self._unsent_reports: list[BatchFinished] = []
        self._report_at = 0.0

    def run(self) -> None:
        """Run until ``stopping`` is set. Return once all messages of this consumer are settled."""
        try:
            while not self._stopping.is_set():
                self._mark_round(time.monotonic())
                try:
                    self._consume(*self._take_from_any())
                except NAMESPACE_ERRORS as error:
                    report_namespace_loss(self._reports, self._stopping, error)
                except TickwheelError as error:
                    if self._stopping.is_set() and isinstance(error, Unavailable):
                        # The stop may have ended the call.
                        return
                    level = logging.ERROR if _log_throttle.should_log(str(error)) else logging.DEBUG
                    _log.log(level, "cannot take messages, retrying: %s", error, extra=log_fields("nothing taken"))
                    self._stopping.wait(_PAUSE_S)
        except BaseException:
            # An error of the app's selector or middleware. Messages that were taken and not run are released by now.
            self._stopping.set()
            raise
        finally:
            self._mark_round(0.0)
            for batch in self._batches:
                self._completer.wait(batch)
            self._send_reports()

    def _take_from_any(self) -> tuple[TaskQueue, list[Message]]:
        """Take a batch from the queue that the selector chooses. If all queues are empty, wait for the first message of
        any of them. If the selector has not asked about all of them, wait for a message of the chosen queue.
        """
        self._queues.is_after_wait = self._found_nothing
        if not (self._waits_for_all and self._queues.is_idle):
            batch = self._tickwheel._dequeue_several(self._queues, 0, self._stopping.is_set)
            if batch.messages:
                return batch.queue, batch.messages
        if self._waits_for_all and self._queues.is_idle:
            self._send_reports()
            batch = self._tickwheel._dequeue_several(self._queues, self._max_wait, self._stopping.is_set)
            if batch.messages or self._queues.is_idle:
                return batch.queue, batch.messages
        return batch.queue, self._wait(batch.queue)

    def _consume(self, queue: TaskQueue, messages: list[Message]) -> None:
        """Run a batch, and take and run further ones up to ``queue.iterations``. Stop at an empty batch."""
        for n in range(queue.iterations):
            if n:
                messages = self._take(queue)
            if not messages:
                self._found_nothing = True
                return
            self._run_batch(messages)
            self._found_nothing = False
            if self._stopping.is_set():
                return

    def _wait(self, queue: TaskQueue) -> list[Message]:
        self._send_reports()
        if not (self._found_nothing and queue.long_poll) and (messages := self._take(queue)):
            return messages
        ends = time.monotonic() + as_timedelta(queue.long_poll).total_seconds()
        while not self._stopping.is_set() and (left := ends - time.monotonic()) > 0:
            self._mark_round(time.monotonic())
            if messages := self._take(queue, min(_MAX_WAIT, timedelta(seconds=left))):
                return messages
        return []

    def _take(self, queue: TaskQueue, wait: timedelta | None = None) -> list[Message]:
        try:
            limit = 1 if wait is not None or self._found_nothing else self._options[queue.name].limit
            options = DequeueOptions.parse(limit, wait=wait, worker=self._worker)
            messages = self._tickwheel._dequeue(queue.name, options, self._stopping.is_set)
        except (QueueBlocked, QueueNotFound) as error:
            # Nothing can be taken now. The queue may be created or unblocked soon.
            self._observe(queue.name, error)
            if wait is not None:
                self._stopping.wait(wait.total_seconds())
            return []
        self._observe(queue.name, None)
        return messages

    def _observe(self, queue: str, error: QueueBlocked | QueueNotFound | None) -> None:
        """Report to the supervisor if the queue has become blocked for dequeue, or was unblocked."""
        _queue_blocks.observe(queue, error, self._reports.send)

    def _run_batch(self, messages: list[Message]) -> None:
        batch_index, queue = self._number % BATCHES_PER_CONSUMER, messages[0].queue
        self._number += 1
        self._mark_round(0.0)
        self._completer.wait(self._batches[batch_index])
        self._mark_round(time.monotonic())
        batch_state = self._batch_states[batch_index]
        batch = self._batches[batch_index] = UnsettledBatch(batch_state, len(messages))
        tasks = [FinishedTask(batch, n, message, None) for n, message in enumerate(messages)]
        left: Iterable[FinishedTask] = tasks
        try:
            # The report comes first. The supervisor ignores the batch state until `begin` has set the number of the
            # batch.
            self._send_reports(
                BatchTaken(self._first_batch_index + batch_index, self._number, list(map(_to_message_lease, messages)))
            )
            batch_state.begin(self._number, [message._held_until for message in messages])
            self._completer.log.received(messages)
            kept, may_all_wait = self._keep(tasks)
            left = self._waiting
            self._waiting.begin(kept)
            call_hook(self._app, "before_batch", queue, [task.message for task in kept])
            started = self._run_tasks(queue, batch_state)
            self._adapt_size(queue, may_all_wait, len(kept), started)
        finally:
            # After an error, release the messages that are left.
            for task in left:
                self._completer.put(task)
        self._on_batch_end()

    def _keep(self, tasks: list[FinishedTask]) -> tuple[list[FinishedTask], bool]:
        """Release the messages that must not wait behind the first one. Return the others, and whether all, also the
        first one, may wait.
        """
        may_wait = self._app._may_wait
        if may_wait is None or self._app.queues[tasks[0].message.queue].batch == 1:
            return tasks, True
        waits = [may_wait(task.message) for task in tasks]
        for task, waits_too in zip(tasks[1:], waits[1:], strict=True):
            if not waits_too:
                self._completer.put(task)
        return [tasks[0], *compress(tasks[1:], waits[1:])], all(waits)

    def _adapt_size(self, queue: str, may_all_wait: bool, kept: int, started: int) -> None:
        """Choose how many messages the next dequeue takes, after a batch of which ``kept`` messages could wait and the
        tasks of ``started`` have begun. Few of the next batch should be released, too.
        """
        limit, size = self._options[queue].limit, self._app.queues[queue].batch
        if not may_all_wait:
            new = 1
        elif started < kept:
            new = max(started // 2, 1)
        elif self._waiting.has_waited(LONGEST_WAIT_S / 2):
            # More would take too long.
            new = max(kept, 1)
        else:
            new = min(2 * limit, size)
        if new != limit:
            self._options[queue] = DequeueOptions.parse(new, worker=self._worker)

    def _run_tasks(self, queue: str, batch_state: BatchState) -> int:
        """Run the tasks of the messages that wait. Return the number of those that were not released."""
        ran: list[TaskRun] = []
        outcomes: list[Outcome] = []
        started = 0
        for task in self._waiting:
            started += 1
            message, message_index = task.message, task.message_index
            if batch_state.is_marked_lost(message_index):
                log_message(_log.info, "lease lost", message, "cancelled, or its lease was lost, before it ran")
                self._completer.settle(task.batch, message_index)
            elif self._stopping.is_set() or _is_over(batch_state, message_index, message):
                self._completer.put(task)
            else:
                began = time.time()
                # The task can extend its lease.
                message._on_held = partial(batch_state.renew, message_index)
                outcome = self._runner.run(
                    message, partial(batch_state.is_lost, message_index), partial(batch_state.start, message_index)
                )
                message._on_held = None
                # The task still counts as running.
                self._mark_round(time.monotonic())
                batch_state.end(message_index, _state(outcome))
                outcomes.append(outcome)
                task.outcome = outcome
                self._completer.put(task)
                # A message can contain any task name. One label for all unknown names keeps the number of labels small.
                name = outcome.task if outcome.task in self._app.tasks else UNKNOWN
                # A message does not state when its back-off ended, so only the first attempt has a known wait.
                wait_s = began - message._due_ms / 1_000 if message.attempt == 1 else None
                ran.append(TaskRun(name, _kind(outcome), wait_s, outcome.seconds))
                if began + outcome.seconds > self._report_at:
                    self._send_reports(BatchFinished(queue, ran))
                    ran = []
        call_hook(self._app, "after_batch", queue, outcomes)
        if ran:
            self._unsent_reports.append(BatchFinished(queue, ran))
        return started

    def _send_reports(self, *reports: Report) -> None:
        if self._unsent_reports or reports:
            self._reports.send(*self._unsent_reports, *reports)
            self._unsent_reports.clear()
            self._report_at = time.time() + _REPORT_INTERVAL_S


def _to_message_lease(message: Message) -> MessageLease:
    return MessageLease(
        message.queue,
        message._queue_number,
        message.id,
        message.exclusive_value,
        message.token,
        message.attempt,
        message._lease_ms / 1_000,
        message._held_until,
    )


def _is_over(batch_state: BatchState, message_index: int, message: Message) -> bool:
    """Return whether the task must not begin, because another worker may have the message by now."""
    if not batch_state.is_over(message_index, time.monotonic()):
        return False
    log_message(_log.info, "lease lost", message, "its lease ran out before its task began; releasing it")
    return True


def _log_unreleased(queue: str, count: int, error: TickwheelError) -> None:
    text = f"cannot release messages of queue {queue!r}, which are delivered again after their leases: {error}"
    _log.log(_log_throttle.level(text), "%s", text, extra=log_fields("not released", queue=queue, count=count))


def _state(outcome: Outcome) -> MessageState:
    if outcome.error is None:
        return MessageState.DONE
    return MessageState.REJECTED if outcome._ends_retries else MessageState.FAILED


def _kind(outcome: Outcome) -> str:
    if outcome.error is None:
        return "completed"
    return "rejected" if outcome._ends_retries else "failed"
