"""What a worker process is at, in memory that it shares with its supervisor.

The process writes there in a fraction of a microsecond whatever it begins and ends, and what it has written stays when
it is killed. A lane, which runs one task at a time, has two pages and uses them in turn: one batch is told to the
server while the next one runs.
"""

import mmap
import os
import tempfile
import time
from enum import IntEnum
from struct import Struct

from tickwheel.tasks.task_queue import MAX_BATCH

# Number of the batch, slot that runs (-1: none), when it began (time.monotonic, of the whole system), its time limit.
_HEAD = Struct("=Qqdd")
_NUMBER = Struct("=Q")
_STARTED = Struct("=qdd")
_STATES_OFFSET = _HEAD.size
_LOST_OFFSET = _STATES_OFFSET + 256
_BATCH_BYTES = _LOST_OFFSET + 256
BATCHES_PER_CONSUMER = 2
assert MAX_BATCH <= 256


class MessageState(IntEnum):
    """Where a message of a batch is."""

    SETTLED = 0  # the server has been told, or the message was never there
    LEASED = 1  # leased, and not begun
    RUNNING = 2
    DONE = 3  # it ran, and the server is about to be told
    FAILED = 4


class BatchState:
    """One batch of one lane. Only its lane writes, but for the marks of leases that are lost."""

    def __init__(self, memory: mmap.mmap, offset: int) -> None:
        self._memory = memory
        self._offset = offset
        _STARTED.pack_into(memory, offset + _NUMBER.size, -1, 0.0, 0.0)

    @property
    def number(self) -> int:
        """Of the batch; a later one has a greater number."""
        return int(_NUMBER.unpack_from(self._memory, self._offset)[0])

    def begin(self, number: int, count: int) -> None:
        """A batch of so many messages is held."""
        states, lost = self._offset + _STATES_OFFSET, self._offset + _LOST_OFFSET
        self._memory[lost : lost + 256] = bytes(256)
        self._memory[states : states + 256] = bytes(
            [MessageState.LEASED] * count + [MessageState.SETTLED] * (256 - count)
        )
        _HEAD.pack_into(self._memory, self._offset, number, -1, 0.0, 0.0)

    def start(self, message_index: int, limit_s: float) -> None:
        """The task of a slot begins."""
        self._memory[self._offset + _STATES_OFFSET + message_index] = MessageState.RUNNING
        _STARTED.pack_into(self._memory, self._offset + _NUMBER.size, message_index, time.monotonic(), limit_s)

    def end(self, message_index: int, state: MessageState) -> None:
        """It has ended."""
        _STARTED.pack_into(self._memory, self._offset + _NUMBER.size, -1, 0.0, 0.0)
        self._memory[self._offset + _STATES_OFFSET + message_index] = state

    def settle(self, message_index: int) -> None:
        """The server has been told, or there is nothing more to tell."""
        self._memory[self._offset + _STATES_OFFSET + message_index] = MessageState.SETTLED

    def state(self, message_index: int) -> MessageState:
        return MessageState(self._memory[self._offset + _STATES_OFFSET + message_index])

    def overdue_task(self, now: float) -> tuple[int, float] | None:
        """Which slot's task is over its time limit, and since when it runs.

        What is written at this very moment may be read in pieces: believe what two looks agree about.
        """
        message_index, started, limit = _STARTED.unpack_from(self._memory, self._offset + _NUMBER.size)
        return (message_index, started) if message_index >= 0 and started > 0 and now > started + limit else None

    def mark_lost(self, message_index: int) -> None:
        """The lease is no longer ours."""
        self._memory[self._offset + _LOST_OFFSET + message_index] = 1

    def is_lost(self, message_index: int) -> bool:
        return self._memory[self._offset + _LOST_OFFSET + message_index] == 1


class SharedState:
    """The pages of all lanes of one process."""

    def __init__(self, consumers: int, fd: int | None = None) -> None:
        """Of a new file without a name, or of that one, which the other side has made."""
        size = consumers * BATCHES_PER_CONSUMER * _BATCH_BYTES
        if fd is None:
            with tempfile.TemporaryFile() as file:
                file.truncate(size)
                fd = os.dup(file.fileno())
        self.fd = fd
        self._memory = mmap.mmap(fd, size)
        self.batches = [BatchState(self._memory, n * _BATCH_BYTES) for n in range(consumers * BATCHES_PER_CONSUMER)]

    def of_consumer(self, consumer: int) -> list[BatchState]:
        return self.batches[consumer * BATCHES_PER_CONSUMER : (consumer + 1) * BATCHES_PER_CONSUMER]

    def close(self) -> None:
        """Let go of it, on this side."""
        self.batches.clear()
        self._memory.close()
        os.close(self.fd)
