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

from tickwheel.tasks.task_queue import MOST_BATCH

# Number of the batch, slot that runs (-1: none), when it began (time.monotonic, of the whole system), its time limit.
_HEAD = Struct("=Qqdd")
_NUMBER = Struct("=Q")
_STARTED = Struct("=qdd")
_STATES_AT = _HEAD.size
_LOST_AT = _STATES_AT + 256
_PAGE = _LOST_AT + 256
PAGES = 2
assert MOST_BATCH <= 256


class Slot(IntEnum):
    """Where a message of a batch is."""

    SETTLED = 0  # the server has been told, or the message was never there
    HELD = 1  # leased, and not begun
    RUNNING = 2
    DONE = 3  # it ran, and the server is about to be told
    FAILED = 4


class Page:
    """One batch of one lane. Only its lane writes, but for the marks of leases that are lost."""

    def __init__(self, memory: mmap.mmap, at: int) -> None:
        self._memory = memory
        self._at = at
        _STARTED.pack_into(memory, at + _NUMBER.size, -1, 0.0, 0.0)

    @property
    def number(self) -> int:
        """Of the batch; a later one has a greater number."""
        return int(_NUMBER.unpack_from(self._memory, self._at)[0])

    def begin(self, number: int, count: int) -> None:
        """A batch of so many messages is held."""
        states, lost = self._at + _STATES_AT, self._at + _LOST_AT
        self._memory[lost : lost + 256] = bytes(256)
        self._memory[states : states + 256] = bytes([Slot.HELD] * count + [Slot.SETTLED] * (256 - count))
        _HEAD.pack_into(self._memory, self._at, number, -1, 0.0, 0.0)

    def start(self, slot: int, limit_s: float) -> None:
        """The task of a slot begins."""
        self._memory[self._at + _STATES_AT + slot] = Slot.RUNNING
        _STARTED.pack_into(self._memory, self._at + _NUMBER.size, slot, time.monotonic(), limit_s)

    def end(self, slot: int, state: Slot) -> None:
        """It has ended."""
        _STARTED.pack_into(self._memory, self._at + _NUMBER.size, -1, 0.0, 0.0)
        self._memory[self._at + _STATES_AT + slot] = state

    def settle(self, slot: int) -> None:
        """The server has been told, or there is nothing more to tell."""
        self._memory[self._at + _STATES_AT + slot] = Slot.SETTLED

    def state(self, slot: int) -> Slot:
        return Slot(self._memory[self._at + _STATES_AT + slot])

    def overdue(self, now: float) -> tuple[int, float] | None:
        """Which slot's task is over its time limit, and since when it runs.

        What is written at this very moment may be read in pieces: believe what two looks agree about.
        """
        slot, started, limit = _STARTED.unpack_from(self._memory, self._at + _NUMBER.size)
        return (slot, started) if slot >= 0 and started > 0 and now > started + limit else None

    def lose(self, slot: int) -> None:
        """The lease is no longer ours."""
        self._memory[self._at + _LOST_AT + slot] = 1

    def is_lost(self, slot: int) -> bool:
        return self._memory[self._at + _LOST_AT + slot] == 1


class Board:
    """The pages of all lanes of one process."""

    def __init__(self, lanes: int, fd: int | None = None) -> None:
        """Of a new file without a name, or of that one, which the other side has made."""
        size = lanes * PAGES * _PAGE
        if fd is None:
            with tempfile.TemporaryFile() as file:
                file.truncate(size)
                fd = os.dup(file.fileno())
        self.fd = fd
        self._memory = mmap.mmap(fd, size)
        self.pages = [Page(self._memory, n * _PAGE) for n in range(lanes * PAGES)]

    def of_lane(self, lane: int) -> list[Page]:
        return self.pages[lane * PAGES : (lane + 1) * PAGES]

    def close(self) -> None:
        """Let go of it, on this side."""
        self.pages.clear()
        self._memory.close()
        os.close(self.fd)
