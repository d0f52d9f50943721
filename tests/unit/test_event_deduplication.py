"""A reader of the history receives each transition once, and learns about gaps."""

from datetime import UTC, datetime

import pytest

from tickwheel.events import Gap, Transition
from tickwheel.events.deduplication import Deduplicator
from tickwheel.events.partition_offsets import PartitionOffsets

pytestmark = pytest.mark.unit


def transition(version: int, *, incarnation: int = 1, id: str = "m", queue: str = "q") -> Transition:
    return Transition("tw", queue, id, None, incarnation, version, None, "pending", datetime.now(UTC), 0)


def take(order: Deduplicator, *transitions: Transition) -> list[Gap]:
    """Record the new transitions, and return the gaps."""
    gaps = [order.record(one, 0) for one in transitions if order.is_new(one)]
    return [gap for gap in gaps if gap is not None]


def test_an_earlier_version_is_not_new() -> None:
    order = Deduplicator()
    take(order, transition(1), transition(2))
    assert [order.is_new(transition(version)) for version in (1, 2, 3)] == [False, False, True]


def test_a_later_life_of_an_id_starts_again() -> None:
    order = Deduplicator()
    assert take(order, transition(1), transition(2), transition(1, incarnation=5)) == []
    assert not order.is_new(transition(3))


def test_messages_are_identified_by_queue_and_id() -> None:
    order = Deduplicator()
    take(order, transition(1))
    assert order.is_new(transition(1, id="other"))
    assert order.is_new(transition(1, queue="other"))


def test_a_missing_version_is_a_gap_and_the_following_version_is_accepted() -> None:
    order = Deduplicator()
    missing = transition(4)
    assert take(order, transition(1), missing, transition(5)) == [Gap(missing, 1)]


def test_a_later_life_without_its_beginning_is_a_gap() -> None:
    order = Deduplicator()
    second = transition(2, incarnation=5)
    assert take(order, transition(1), second) == [Gap(second, 0)]


def test_the_most_recently_changed_messages_are_remembered() -> None:
    order = Deduplicator(remembered=2)
    take(order, transition(1, id="a"), transition(1, id="b"), transition(2, id="a"), transition(1, id="c"))
    assert [order.is_new(transition(1, id=id)) for id in "abc"] == [False, True, False]


def test_only_the_revoked_partition_is_forgotten() -> None:
    order = Deduplicator()
    for partition in (0, 1):
        order.record(transition(1, id=f"of {partition}"), partition)
    order.forget(1)
    assert not order.is_new(transition(1, id="of 0"))
    assert take(order, transition(3, id="of 1")) == []


def skipped(partitions: PartitionOffsets, *offsets: int) -> list[bool]:
    return [partitions.advance(0, offset) for offset in offsets]


@pytest.mark.parametrize(("back_at", "expected"), [(5, False), (6, False), (7, True)])
def test_a_partition_assigned_again_at_a_later_offset_was_read_by_others(back_at: int, expected: bool) -> None:
    partitions = PartitionOffsets()
    partitions.assign([0, 1])
    assert skipped(partitions, 4, 5) == [False, False]
    partitions.assign([0])
    assert skipped(partitions, back_at, 9) == [expected, False]


def test_a_partition_assigned_again_at_an_earlier_offset_has_no_skipped_records() -> None:
    partitions = PartitionOffsets()
    partitions.assign([0])
    skipped(partitions, *range(10))
    partitions.assign([0])
    skipped(partitions, 3)
    partitions.assign([0])
    assert skipped(partitions, 10) == [False]


def test_the_assignment_of_another_partition_changes_nothing() -> None:
    partitions = PartitionOffsets()
    partitions.assign([0])
    skipped(partitions, 1)
    partitions.assign([1])
    assert skipped(partitions, 9) == [False]
