"""The queues as the driver of a watched loop finds them: a call of the metadata shard counts as waiting."""

from collections.abc import Callable
from typing import TypeVar

from tickwheel.driver.queue_lookup import QueueLookup, QueueRef
from tickwheel.event_process.loop_waits import LoopWaits

T = TypeVar("T")


class WatchedQueues:
    """Finds queues like ``queues``, and records in ``waits`` when the loop waits for the metadata shard.

    The driver calls these methods in the middle of its own work. Without this class, an election by lease would take a
    loop that waits for a slow server for a loop that hangs (`LoopWatch`).
    """

    def __init__(self, queues: QueueLookup, waits: LoopWaits) -> None:
        self._queues = queues
        self._waits = waits

    @property
    def unreadable_rows(self) -> int:
        return self._queues.unreadable_rows

    @property
    def read_pause_ms(self) -> float:
        return self._queues.read_pause_ms

    def cached(self, number: int) -> QueueRef | None:
        return self._queues.cached(number)

    def find(self, number: int) -> QueueRef | None:
        return self._queues.cached(number) or self._wait_for(lambda: self._queues.find(number))

    def lookup(self, number: int) -> QueueRef | None:
        return self._queues.cached(number) or self._wait_for(lambda: self._queues.lookup(number))

    def renew(self, number: int, shard: int) -> QueueRef | None:
        return self._wait_for(lambda: self._queues.renew(number, shard))

    def check_shards(self) -> bool:
        return self._wait_for(self._queues.check_shards)

    def _wait_for(self, call: Callable[[], T]) -> T:
        self._waits.begin_wait()
        try:
            return call()
        finally:
            self._waits.end_wait()
