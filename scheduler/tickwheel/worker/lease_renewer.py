"""Renews the leases of one worker process while the process lives.

The renewer runs in the supervisor. So a task that blocks its interpreter or its process does not lose leases.
"""

import logging
import math
import os
import select
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain

from tickwheel import limits
from tickwheel.client import Message, Queue, Tickwheel
from tickwheel.errors import LeaseLost, QueueNotFound, TickwheelError
from tickwheel.runtime.log_fields import log_fields
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.worker.blocked_queues import BlockedQueues
from tickwheel.worker.ipc import (
    BatchFinished,
    BatchTaken,
    Ended,
    Failed,
    MessageLease,
    NamespaceLost,
    OccurrenceHandled,
    QueueBlock,
    Ready,
    ReportReader,
    StartFailed,
)
from tickwheel.worker.namespace_loss import NAMESPACE_ERRORS
from tickwheel.worker.shared_state import BatchState, MessageState, SharedState
from tickwheel.worker.stats import Stats

_log = logging.getLogger("tickwheel.worker")
# For all processes of the worker.
_log_throttle = LogThrottle()
_TICK_MS = 250
# The pause after each read, so that one read returns the reports of several short batches. A lease is at least a
# hundred times as long, and the pipe can hold the reports that arrive during the pause.
_GATHER_S = 0.01
# A lease is renewed after a third of its length. The first renewal comes at most this time after the report of the
# batch, because part of the lease may be over: the batch may have waited for a free place in the shared memory.
_FIRST_RENEWAL_S = 5.0
_MIN_LEASE_S = limits.LEASE_MS_MIN / 1_000
_MAX_LEASE_S = limits.LEASE_MS_MAX / 1_000
_UNFINISHED = (MessageState.LEASED, MessageState.RUNNING)


@dataclass(slots=True)
class _Lease:
    """The lease of one message of the batch ``number``. ``batch_state`` has the progress of the batch."""

    message: MessageLease
    batch_state: BatchState
    number: int
    message_index: int
    lease_s: float
    renew_at: float

    def is_held(self) -> bool:
        """Return whether the message is not settled, and its lease not lost."""
        return (
            self.batch_state.number == self.number
            and self.batch_state.state(self.message_index) is not MessageState.SETTLED
            and not self.batch_state.is_marked_lost(self.message_index)
        )


class LeaseRenewer:
    """Reads the reports of a process and renews its leases, in its own thread, until the process ends."""

    def __init__(
        self,
        shared_state: SharedState,
        report_fd: int,
        on_ready: Callable[[Ready], Tickwheel],
        stats: Stats,
        executor: Executor,
        on_namespace_loss: Callable[[str], None] = lambda reason: None,
        blocked_queues: BlockedQueues | None = None,
    ) -> None:
        """Start the thread.

        ``on_ready`` returns the client that renews the leases. ``stats`` counts the tasks and the occurrences that the
        process reports, and the renewals. Each renewal call is for leases of one queue. ``executor`` runs each call in
        its own thread, so that a call to an unreachable server delays no other call. ``on_namespace_loss`` is called
        with the reason if the process or a renewal finds that the namespace is gone. ``blocked_queues`` takes what the
        process reports about them.
        """
        self._shared_state = shared_state
        self._fd = report_fd
        self._reports = ReportReader(report_fd)
        # Not `select.select`, which accepts no descriptor above 1023.
        self._poll = select.poll()
        self._poll.register(report_fd, select.POLLIN)
        self._on_ready = on_ready
        self._on_namespace_loss = on_namespace_loss
        self._blocked_queues = blocked_queues or BlockedQueues()
        self._stats = stats
        self._ready_report: Ready | None = None
        self.start_failure: StartFailed | None = None
        # Whether the process has reported that it ends as intended.
        self.has_ended = False
        # The monotonic time at which the process has reported its end, as intended or because of an error.
        self.ended_at = math.inf
        self._tickwheel: Tickwheel | None = None
        # By batch index, which is a place in the shared memory: the last batch that had this place, and its leases.
        self._batches: dict[int, BatchTaken] = {}
        self._leases: dict[int, list[_Lease]] = {}
        # The queues of the leases so far, by name and number: a recreated queue has another number.
        self._queues: set[tuple[str, int]] = set()
        self._executor = executor
        self._in_flight: set[Future[None]] = set()
        # The monotonic time from which leases are no longer renewed: the process has closed or misused the pipe.
        self.pipe_closed_at = math.inf
        self._exited = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tickwheel-renewer", daemon=True)
        self._thread.start()

    @property
    def is_ready(self) -> bool:
        """Whether the process has loaded its app, has run the start hooks, and takes messages."""
        return self._ready_report is not None

    @property
    def task_names(self) -> Collection[str]:
        """The names of the tasks of the process."""
        return () if self._ready_report is None else self._ready_report.tasks

    @property
    def batches(self) -> list[BatchTaken]:
        """The last batch of each place in the shared memory."""
        return list(self._batches.values())

    def open_client(self) -> Tickwheel:
        """Return the client that renews the leases. Open it if necessary. Raises TickwheelError."""
        if self._tickwheel is None:
            assert self._ready_report is not None
            self._tickwheel = self._on_ready(self._ready_report)
        return self._tickwheel

    def stop(self) -> None:
        """Stop renewing, after the process has ended. Return once all of its reports are read."""
        self._exited.set()
        self._thread.join()
        os.close(self._fd)

    def close(self) -> None:
        """Cancel the calls that have not started, and wait for the others, because calls use the shared state."""
        wait([call for call in self._in_flight if not call.cancel()])

    def _run(self) -> None:
        try:
            while not self._reports.at_eof and not self._exited.is_set():
                if self._has_reports(_TICK_MS):
                    self._read()
                    time.sleep(_GATHER_S)
                self._renew()
            # A process that a task has started may hold the pipe open. So read only the reports that have arrived.
            while not self._reports.at_eof and self._has_reports(0):
                self._read()
        except Exception:
            _log.exception("the leases of a worker process are no longer renewed", extra=log_fields("mistake"))
        self._blocked_queues.forget(self)
        self.pipe_closed_at = time.monotonic()

    def _has_reports(self, wait_ms: int) -> bool:
        return bool(self._poll.poll(wait_ms))

    def _read(self) -> None:
        for report in self._reports.read():
            match report:
                case Ready():
                    self._ready_report = report
                    try:
                        self._tickwheel = self._on_ready(report)
                    except Exception as error:
                        # The process itself has connected a moment ago, so the outage is probably short. `_extend`
                        # tries again when a lease must be renewed, and the supervisor tries again regularly.
                        _log.warning(
                            "cannot renew leases yet, retrying: %s", error,
                            extra=log_fields("leases not renewed"), exc_info=not isinstance(error, TickwheelError),
                        )  # fmt: skip
                case StartFailed() | Ended() | Failed():
                    self.start_failure = report if isinstance(report, StartFailed) else None
                    self.has_ended = isinstance(report, Ended)
                    self.ended_at = time.monotonic()
                case BatchTaken():
                    now, leases = time.monotonic(), []
                    batch_state = self._shared_state.batches[report.batch_index]
                    for index, message in enumerate(report.messages):
                        lease_s = min(max(message.lease_s, _MIN_LEASE_S), _MAX_LEASE_S)
                        # Renew the first leases of a queue immediately. The client then has the configuration of the
                        # queue, and can renew later leases even if the server of the configuration is unreachable.
                        wait_s = min(lease_s / 3, _FIRST_RENEWAL_S) if _queue_identity(message) in self._queues else 0
                        # Earlier if the dequeue has waited for the message: part of the lease may be over then.
                        renew_at = min(now + wait_s, message.held_until - lease_s * 2 / 3)
                        leases.append(_Lease(message, batch_state, report.number, index, lease_s, renew_at))
                    self._queues.update(map(_queue_identity, report.messages))
                    self._batches[report.batch_index] = report
                    self._leases[report.batch_index] = leases
                case BatchFinished():
                    self._stats.record_batch(report)
                case NamespaceLost():
                    self._on_namespace_loss(report.reason)
                case OccurrenceHandled():
                    self._stats.record_occurrence(report)
                case QueueBlock():
                    self._blocked_queues.record(self, report)

    def _renew(self) -> None:
        now = time.monotonic()
        due: dict[tuple[tuple[str, int], float], list[_Lease]] = {}
        for lease in chain.from_iterable(self._leases.values()):
            if now >= lease.renew_at and lease.is_held():
                due.setdefault((_queue_identity(lease.message), lease.lease_s), []).append(lease)
                # `_extend` sets the time of the next renewal.
                lease.renew_at = math.inf
        self._in_flight = {call for call in self._in_flight if not call.done()}
        for ((queue, _), lease_s), leases in due.items():
            try:
                self._in_flight.add(self._executor.submit(self._extend, queue, lease_s, leases))
            except Exception as error:
                # The host has no resources for another thread. The process is healthy, so go on.
                _renew_later(queue, lease_s, leases, error)

    def _extend(self, queue: str, lease_s: float, leases: list[_Lease]) -> None:
        """Renew leases of one queue and of the same length by one call. Runs in a thread of the executor."""
        messages = [_to_message(lease.message) for lease in leases]
        began, lost = time.monotonic(), set()
        try:
            _extend_many(self.open_client().queue(queue), messages, timedelta(seconds=lease_s))
        except LeaseLost as error:
            lost = set(map(id, error.lost))
        except NAMESPACE_ERRORS as error:
            self._on_namespace_loss(str(error))
            lost = set(map(id, messages))
        except QueueNotFound as error:
            _log.warning(
                "%d leases of queue %s are lost: %s", len(messages), queue, error,
                extra=log_fields("leases lost", queue=queue),
            )  # fmt: skip
            lost = set(map(id, messages))
        except Exception as error:
            _renew_later(queue, lease_s, leases, error)
            return
        for lease, message in zip(leases, messages, strict=True):
            lease.renew_at = began + lease_s / 3
            batch_state, index = lease.batch_state, lease.message_index
            if id(message) not in lost:
                self._stats.record_renewal(True)
                if batch_state.number == lease.number:
                    batch_state.renew(index, began + lease_s)
            # The message may have been settled in the meantime, and the batch state may belong to another batch.
            elif batch_state.number == lease.number and batch_state.state(index) in _UNFINISHED:
                batch_state.mark_lost(index)
                lease.renew_at = math.inf
                self._stats.record_renewal(False)


def _renew_later(queue: str, lease_s: float, leases: list[_Lease], error: Exception) -> None:
    if _log_throttle.should_log(f"{queue}: {error}"):
        _log.warning(
            "cannot renew %d leases of queue %s, retrying: %s", len(leases), queue, error,
            extra=log_fields("leases not renewed", queue=queue), exc_info=not isinstance(error, TickwheelError),
        )  # fmt: skip
    for lease in leases:
        lease.renew_at = time.monotonic() + min(1.0, lease_s / 3)


def _extend_many(queue: Queue, messages: list[Message], duration: timedelta) -> None:
    try:
        queue.extend_many(messages, duration)
    except QueueNotFound:
        # The client can raise this error once for a recreated queue with the number of the deleted queue. Such a queue
        # exists if its namespace was recreated. Then the leases are good, and the repeated call renews them.
        queue.extend_many(messages, duration)


def _queue_identity(message: MessageLease) -> tuple[str, int]:
    return message.queue, message.queue_number


def _to_message(lease: MessageLease) -> Message:
    return Message.by_lease(
        lease.queue, lease.queue_number, lease.id, lease.exclusive_value, lease.token, lease.attempt
    )
