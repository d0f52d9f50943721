"""A loop that reads the metadata shard in the middle of its work waits: it does not hang."""

from collections.abc import Callable
from typing import Any

import pytest

from tickwheel.driver.queue_lookup import QueueRef
from tickwheel.election.claims import LeaseClaims
from tickwheel.election.lease_shards import LeaseLeadership
from tickwheel.election.loop_watch import LoopWatch
from tickwheel.event_process.loop_waits import LoopWaits
from tickwheel.event_process.watched_queues import WatchedQueues
from tickwheel.storage.fence import StoredClaim

pytestmark = pytest.mark.unit

LEASE_MS = 4_000.0
KNOWN = QueueRef("known", b"")


class SlowQueues:
    """Queues whose metadata shard takes three leases for each answer. Meanwhile, the election checks the loop."""

    def __init__(self) -> None:
        self.unreadable_rows = 3
        self.read_pause_ms = 7.0
        self.hanging: list[LeaseLeadership] = []
        self.reads = 0
        shards: Any = None
        self.leadership = LeaseLeadership(0, LeaseClaims("m", StoredClaim()), lambda: None, shards)
        self.watch, self.now = LoopWatch(LEASE_MS), 0.0
        self.leadership.end_wait()
        self.check()

    def check(self) -> None:
        self.hanging += self.watch.hanging([self.leadership], self.now)

    def _read(self) -> None:
        self.reads += 1
        for _ in range(12):
            self.now += LEASE_MS / 4
            self.check()

    def cached(self, number: int) -> QueueRef | None:
        return KNOWN if number == 1 else None

    def find(self, number: int) -> QueueRef | None:
        return self.lookup(number)

    def lookup(self, number: int) -> QueueRef | None:
        self._read()
        return self.cached(number)

    def renew(self, number: int, shard: int) -> QueueRef | None:
        self._read()
        raise ConnectionError

    def check_shards(self) -> bool:
        self._read()
        return True


def renew(queues: WatchedQueues) -> None:
    with pytest.raises(ConnectionError):
        queues.renew(1, 0)


@pytest.mark.parametrize(
    "call", [lambda queues: queues.lookup(2), lambda queues: queues.find(2), renew, WatchedQueues.check_shards]
)
def test_a_slow_read_of_the_metadata_shard_does_not_count_as_work(call: Callable[[WatchedQueues], object]) -> None:
    slow = SlowQueues()
    call(WatchedQueues(slow, LoopWaits(slow.leadership)))
    assert (slow.reads, slow.hanging) == (1, [])
    # After the answer, the loop works again.
    assert not slow.leadership.is_waiting
    slow._read()
    assert slow.hanging == [slow.leadership] * 8


def test_a_cached_queue_is_found_without_a_wait() -> None:
    slow = SlowQueues()
    queues = WatchedQueues(slow, LoopWaits(slow.leadership))
    rounds = slow.leadership.rounds
    assert queues.lookup(1) == queues.find(1) == queues.cached(1) == KNOWN
    assert (slow.reads, slow.leadership.rounds, queues.unreadable_rows, queues.read_pause_ms) == (0, rounds, 3, 7.0)
