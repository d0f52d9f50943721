"""The progress of a worker process, in memory that the process shares with its supervisor.

The process records the start and the end of each task, in a fraction of a microsecond. The records remain if the
process is killed. The supervisor records which leases are lost, and until when it has renewed the others. A *batch
state* is the part of the memory that has the progress of one batch. A consumer, which runs one task at a time, uses two
batch states alternately: one batch is settled on the server while the next one runs.
"""

import ctypes
import math
import mmap
import os
import time
from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from tickwheel.runtime.shared_memory import create_shared_memory
from tickwheel.tasks.task_queue import MAX_BATCH

BATCHES_PER_CONSUMER: Final = 2
_MESSAGES: Final = 256
assert MAX_BATCH <= _MESSAGES


class MessageState(IntEnum):
    """The progress of one message of a batch."""

    SETTLED = 0  # settled on the server, or no message has this index
    LEASED = 1  # leased, and not started
    RUNNING = 2
    DONE = 3  # the task succeeded; the message is about to be completed
    FAILED = 4  # the task failed; the message is about to be failed
    REJECTED = 5  # the task failed, and must not be retried; the message is about to be failed


# Looking up a member of an enum takes twice as long as writing it, and `start` is called three times for each task.
_RUNNING: Final = MessageState.RUNNING
_SETTLED: Final = MessageState.SETTLED


class _RunningTask(ctypes.Structure):
    _fields_ = (
        ("message_index", ctypes.c_int64),  # -1 if no task runs
        ("started", ctypes.c_double),  # `time.monotonic`, which is the same in every process
        ("limit_s", ctypes.c_double),
    )


class _Batch(ctypes.Structure):
    _fields_ = (
        ("number", ctypes.c_uint64),
        ("running", _RunningTask),
        ("states", ctypes.c_uint8 * _MESSAGES),
        ("lost", ctypes.c_uint8 * _MESSAGES),
        ("held_until", ctypes.c_double * _MESSAGES),
    )


# Invariant: every number is aligned, also in an array of batches, so no process reads a half-written number.
assert ctypes.sizeof(_Batch) == 8 + 3 * 8 + (1 + 1 + 8) * _MESSAGES
assert ctypes.sizeof(_Batch) % ctypes.alignment(ctypes.c_uint64) == 0


class BatchState:
    """One batch of one consumer. The supervisor marks lost leases, and renews others. The consumer writes all else.

    For each lease, the batch state has the time until which the lease lasts at least, by `time.monotonic`: the time at
    which the call that leased the message or renewed the lease was sent, plus the length of the lease. So the process
    notices the end of a lease also if its supervisor is gone or reaches no server.
    """

    def __init__(self, batch: _Batch) -> None:
        self._batch = batch
        self._running = batch.running
        self._states = batch.states
        self._lost = batch.lost
        self._held_until = batch.held_until
        self._running.message_index = -1

    @property
    def number(self) -> int:
        """The number of the batch; a later batch has a greater number."""
        return int(self._batch.number)

    def begin(self, number: int, held_until: Sequence[float]) -> None:
        """Begin a batch of messages, whose leases last until these times at least."""
        count = len(held_until)
        self._batch.number = 0
        self._running.message_index = -1
        ctypes.memset(self._lost, 0, _MESSAGES)
        ctypes.memset(self._states, MessageState.SETTLED, _MESSAGES)
        ctypes.memset(self._states, MessageState.LEASED, count)
        self._held_until[:count] = held_until
        # The number is set last: the supervisor ignores the other fields until the number is that of the batch.
        self._batch.number = number

    def start(self, message_index: int, limit_s: float) -> None:
        """Mark the start of a task, or of a part of its run (see `Runner.run`): the limit applies to each part."""
        self._states[message_index] = _RUNNING
        running = self._running
        running.limit_s = limit_s
        running.started = time.monotonic()
        running.message_index = message_index

    def end(self, message_index: int, state: MessageState) -> None:
        """Mark the end of a task."""
        self._running.message_index = -1
        self._states[message_index] = state

    def settle(self, message_index: int) -> None:
        """Mark a message as settled: the server needs no further call for it."""
        self._states[message_index] = _SETTLED

    def state(self, message_index: int) -> MessageState:
        return MessageState(self._states[message_index])

    def overdue_task(self, now: float) -> tuple[int, float] | None:
        """Return the message index and the start of the running part of a task if it is over the limit, else None.

        The process may write the fields of the next task during the read: trust a result only if two reads return it.
        """
        running = self._running
        message_index, started, limit_s = running.message_index, running.started, running.limit_s
        return (message_index, started) if message_index >= 0 and started > 0 and now > started + limit_s else None

    @property
    def is_running(self) -> bool:
        """Whether a task runs."""
        return bool(self._running.message_index >= 0)

    @property
    def running_until(self) -> float:
        """The time until which the lease of the running task lasts at least. Infinite if no task runs."""
        message_index = self._running.message_index
        return float(self._held_until[message_index]) if message_index >= 0 else math.inf

    def mark_lost(self, message_index: int) -> None:
        """Mark a lease that this worker has lost, by the answer of the server."""
        self._lost[message_index] = 1

    def is_marked_lost(self, message_index: int) -> bool:
        return bool(self._lost[message_index])

    def renew(self, message_index: int, until: float) -> None:
        """Record that the lease lasts until this time at least. A renewal never shortens a lease."""
        if until > self._held_until[message_index]:
            self._held_until[message_index] = until

    def is_over(self, message_index: int, now: float) -> bool:
        """Return whether the lease may have ended by this time, because no renewal has succeeded."""
        return bool(now >= self._held_until[message_index])

    def is_lost(self, message_index: int) -> bool:
        """Return whether the lease is marked as lost, or is over by the clock of this host.

        A lease that is over becomes good again if a later renewal succeeds: nobody else has leased the message then.
        """
        return bool(self._lost[message_index]) or self.is_over(message_index, time.monotonic())


class SharedState:
    """The batches of all consumers of one process, and the time at which each consumer has last come round."""

    def __init__(self, consumers: int, fd: int | None = None) -> None:
        """Map the supervisor's file ``fd``, or create a new file without a name."""
        count = consumers * BATCHES_PER_CONSUMER
        batches_size = count * ctypes.sizeof(_Batch)
        size = batches_size + consumers * ctypes.sizeof(ctypes.c_double)
        self.fd = create_shared_memory(size) if fd is None else fd
        try:
            memory = mmap.mmap(self.fd, size)
        except OSError:
            os.close(self.fd)
            raise
        # The memory is unmapped when the last object that refers to it is deleted.
        self.batches = [BatchState(batch) for batch in (_Batch * count).from_buffer(memory)]
        # By `time.monotonic`; 0 while the consumer cannot come round.
        self._rounds = (ctypes.c_double * consumers).from_buffer(memory, batches_size)

    def of_consumer(self, consumer: int) -> list[BatchState]:
        return self.batches[consumer * BATCHES_PER_CONSUMER : (consumer + 1) * BATCHES_PER_CONSUMER]

    def mark_round(self, consumer: int, at: float) -> None:
        """Record that a consumer has come round at this time, by `time.monotonic`. With 0, it is not checked."""
        self._rounds[consumer] = at

    def hangs(self, before: float) -> bool:
        """Return whether a consumer runs no task, and has last come round ``before`` this time."""
        return any(
            0.0 < at < before and not any(batch.is_running for batch in self.of_consumer(consumer))
            for consumer, at in enumerate(self._rounds)
        )

    @property
    def running_until(self) -> float:
        """The earliest time at which the lease of a running task may end. Infinite if no task runs."""
        return min((batch.running_until for batch in self.batches), default=math.inf)

    def close(self) -> None:
        """Release the memory and the file in this process."""
        self.batches.clear()
        self._rounds = (ctypes.c_double * 0)()
        os.close(self.fd)
