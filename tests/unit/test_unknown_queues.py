"""The limits of a driver that meets numbers of queues that it does not know."""

import pytest

from tickwheel.driver.unknown_queues import FINDS_IN_VAIN, READ_PAUSE_MS, UnknownQueues
from tickwheel.event_process import QueueRef
from tickwheel.testing.driver_clock import ManualClock

pytestmark = pytest.mark.unit


class Queues:
    """Queues that one read of a row finds, and queues that only a read of all rows finds."""

    unreadable_rows = 0
    read_pause_ms = 0.0

    def __init__(self) -> None:
        self.alone: set[int] = set()
        self.in_all: set[int] = set()
        self.known: dict[int, QueueRef] = {}
        self.finds: list[int] = []
        self.reads = 0

    def cached(self, number: int) -> QueueRef | None:
        return self.known.get(number)

    def find(self, number: int) -> QueueRef | None:
        self.finds.append(number)
        if number in self.alone:
            self.known[number] = QueueRef(f"q{number}", b"")
        return self.cached(number)

    def lookup(self, number: int) -> QueueRef | None:
        self.reads += 1
        self.known |= {one: QueueRef(f"q{one}", b"") for one in self.alone | self.in_all}
        return self.cached(number)

    def renew(self, number: int, shard: int) -> QueueRef | None:
        raise AssertionError

    def check_shards(self) -> bool:
        return True


def test_numbers_without_a_queue_cost_few_calls() -> None:
    queues, clock = Queues(), ManualClock(1_900_000_000_000)
    unknown = UnknownQueues(queues, clock)
    for number in range(1_000):
        assert unknown.find(number) is None
    assert (len(queues.finds), queues.reads) == (FINDS_IN_VAIN, 1)
    clock.now_ms += READ_PAUSE_MS
    for number in range(1_000, 2_000):
        assert unknown.find(number) is None
    assert (len(queues.finds), queues.reads) == (2 * FINDS_IN_VAIN, 2)


def test_a_new_queue_is_found_alone_while_numbers_without_a_queue_wait() -> None:
    queues = Queues()
    unknown = UnknownQueues(queues, ManualClock(1_900_000_000_000))
    for number in range(FINDS_IN_VAIN - 1):
        unknown.find(number)
    queues.alone = set(range(100, 200))
    assert all(unknown.find(number) is not None for number in queues.alone)
    assert queues.reads == 1


def test_a_missing_number_that_gets_a_queue_is_not_missing_any_more() -> None:
    queues, clock = Queues(), ManualClock(1_900_000_000_000)
    unknown = UnknownQueues(queues, clock)
    assert unknown.find(7) is None
    assert unknown.is_missing(7)
    queues.alone = {7}
    assert unknown.find(7) == QueueRef("q7", b"")
    assert not unknown.is_missing(7)


def test_a_number_over_the_limit_waits_for_the_next_read_of_all_queues() -> None:
    queues, clock = Queues(), ManualClock(1_900_000_000_000)
    unknown = UnknownQueues(queues, clock)
    for number in range(FINDS_IN_VAIN):
        unknown.find(number)
    queues.in_all = {100}
    assert unknown.find(100) is None
    assert not unknown.is_missing(100)
    clock.now_ms += unknown.wait_ms
    assert unknown.find(100) == QueueRef("q100", b"")
