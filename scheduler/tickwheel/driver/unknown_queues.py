"""Queue numbers of one shard's timers that the metadata shard may not have, and the limit of reads of this shard.

A user of Redis who may write to the inbox can add timers with all 65,535 numbers. Without the limit, each of these
numbers would make the driver read the configurations of all queues, again and again. A queue that a client of an older
version has created needs such a read, too. Its timers wait until the read may begin (`QueueLookup.read_pause_ms`),
while those of other queues fire.

If a read does not find a number, the due timers with this number are *left out*: they leave the memory, and stay in
Redis. The metadata shard may have lost data in a failover, and the messages of these timers may still exist. When the
number has a queue again, the driver starts again, and so loads the timers. In memory, such timers would count towards
the limits at which the driver stops reading slots.
"""

from collections import Counter
from math import ceil, inf
from typing import Final

from tickwheel.driver.clock import Clock
from tickwheel.driver.queue_lookup import QueueLookup, QueueRef
from tickwheel.errors import TickwheelError

# The pause after a read of the metadata shard that did not find the number.
READ_PAUSE_MS: Final = 1_000
# How many numbers are looked up one by one in a READ_PAUSE_MS without success. Further numbers wait for the next read.
FINDS_IN_VAIN: Final = 16
# The time between checks whether the number of a timer that was left out has a queue again.
UNKNOWN_MS: Final = 10_000


class QueueRestored(TickwheelError):
    """A queue number whose timers were left out has a queue again: a new driver must load the timers."""


class UnknownQueues:
    """Finds queues, and keeps the pauses between reads of the metadata shard. After a read in vain, it is a second."""

    def __init__(self, queues: QueueLookup, clock: Clock) -> None:
        self._queues = queues
        self._clock = clock
        self._next_read_ms = -inf
        # The numbers that wait for the next read, and those that no read has found.
        self._waiting: set[int] = set()
        self._missing: set[int] = set()
        # How many numbers `QueueLookup.find` has not found, and until when they count.
        self._finds_in_vain = 0
        self._finds_until_ms = -inf
        # By number, the timers that were left out.
        self._left_out: Counter[int] = Counter()
        self.next_check_ms = inf
        """The moment of the next check on the monotonic clock; infinity if no timers were left out."""

    def find(self, number: int) -> QueueRef | None:
        """Return the queue of this number, or None if it is missing, or if no read of the metadata shard is due."""
        queue = self._queues.cached(number)
        if queue is None and number not in self._waiting:
            queue = self._find_alone(number)
        if queue is not None:
            self._missing.discard(number)
            if number in self._left_out:
                self.next_check_ms = -inf
            return queue
        if number not in self._missing:
            self._waiting.add(number)
        if self._pause_ms > 0:
            return None
        queue = self._queues.lookup(number)
        self._waiting.discard(number)
        if queue is None:
            self._next_read_ms = self._clock.monotonic() + READ_PAUSE_MS
            # The read was for this number, and found none of the waiting numbers that are still not cached.
            self._missing |= {n for n in self._waiting if self._queues.cached(n) is None} | {number}
            self._waiting.clear()
        return queue

    def _find_alone(self, number: int) -> QueueRef | None:
        """Return the queue if its row alone can be read. This takes two calls, so failures are limited."""
        now = self._clock.monotonic()
        if now >= self._finds_until_ms:
            self._finds_in_vain, self._finds_until_ms = 0, now + READ_PAUSE_MS
        if self._finds_in_vain >= FINDS_IN_VAIN:
            return None
        queue = self._queues.find(number)
        if queue is None:
            self._finds_in_vain += 1
        return queue

    @property
    def wait_ms(self) -> int:
        """For how long to postpone the timers of a number for which `find` has returned None; at least 1."""
        return max(1, ceil(self._pause_ms))

    def is_missing(self, number: int) -> bool:
        """Return whether a read did not find the number. Call this after `find` has returned None for the number."""
        return number in self._missing

    def leave_out(self, number: int, timers: int) -> None:
        """Record that this number of timers of a missing number has left the memory."""
        self._left_out[number] += timers
        if self.next_check_ms == inf:
            self.next_check_ms = self._clock.monotonic() + UNKNOWN_MS

    def check(self) -> int:
        """Return the number of timers that are left out, if a check was due and has found none of their queues, else 0.

        Raises QueueRestored if one of the queues exists.
        """
        if self._clock.monotonic() < self.next_check_ms:
            return 0
        if self._queues.read_pause_ms > 0:
            self.next_check_ms = self._clock.monotonic() + self._queues.read_pause_ms
            return 0
        self.next_check_ms = self._clock.monotonic() + UNKNOWN_MS
        self._queues.lookup(next(iter(self._left_out)))
        for number in self._left_out:
            if self._queues.cached(number) is not None:
                raise QueueRestored(f"queue number {number} has a queue again: loading all timers again")
        return self._left_out.total()

    @property
    def _pause_ms(self) -> float:
        return max(self._next_read_ms - self._clock.monotonic(), self._queues.read_pause_ms)
