"""Queue numbers of one shard's timers that the metadata shard may not have, and the limit of reads of this shard.

A user of Redis who may write to the inbox can add timers with all 65,535 numbers. Without the limit, each of these
numbers would make the driver read the configurations of all queues, again and again.
"""

from math import inf
from typing import Final

from tickwheel.driver.clock import Clock
from tickwheel.driver.queue_lookup import QueueLookup, QueueRef

# The pause after a read of the metadata shard that did not find the number. Every other read finds a new queue.
READ_PAUSE_MS: Final = 1_000


class UnknownQueues:
    """Finds queues, and reads the metadata shard in vain at most once a second."""

    def __init__(self, queues: QueueLookup, clock: Clock) -> None:
        self._queues = queues
        self._clock = clock
        self._next_read_ms = -inf
        # The numbers that wait for the next read, and those that the latest read did not find.
        self._waiting: set[int] = set()
        self._missing: set[int] = set()

    def find(self, number: int) -> QueueRef | None:
        """Return the queue of this number, or None if it is missing, or if no read of the metadata shard is due."""
        queue = self._queues.cached(number)
        if queue is not None or number in self._missing:
            return queue
        self._waiting.add(number)
        if self._clock.monotonic() < self._next_read_ms:
            return None
        queue = self._queues.lookup(number)
        self._waiting.discard(number)
        if queue is None:
            self._next_read_ms = self._clock.monotonic() + READ_PAUSE_MS
            # The read was for this number, and found none of the waiting numbers that are still not cached.
            self._missing |= {n for n in self._waiting if self._queues.cached(n) is None} | {number}
            self._waiting.clear()
        return queue

    def take_missing(self, number: int) -> bool:
        """Return whether a read did not find the number, and forget this: the next `find` counts on another read."""
        is_missing = number in self._missing
        self._missing.discard(number)
        return is_missing
