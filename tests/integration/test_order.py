"""Earliest deadline first, ties by first enqueue; a message without a deadline never precedes an equal one with it."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.wait_until import eventually
from tickwheel import InvalidArgument, NewMessage, Queue, Tickwheel
from tickwheel.storage.sharding import shard_of
from tickwheel.testing import PrivateServer, VirtualClock
from tickwheel.testing.virtual_clock import FRAGMENT

pytestmark = pytest.mark.integration

Neighbours = Callable[[str, int], list[str]]
MS = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)


def drained(queue: Queue) -> list[str]:
    """Return the ids of all Pending messages, in the order in which one worker gets them."""
    ids = []
    while messages := queue.dequeue(consistency="exact"):
        ids += [message.id for message in messages]
    return ids


def test_the_earliest_deadline_is_first(queue: Queue, clock: VirtualClock) -> None:
    for n in (3, 1, 4, 1.5, 9, 2, 6):
        queue.enqueue(id=str(n), deadline=clock.now + n * timedelta(hours=1))
    assert drained(queue) == ["1", "1.5", "2", "3", "4", "6", "9"]


def test_one_call_returns_messages_in_the_order_of_deadlines(
    queue: Queue, clock: VirtualClock, neighbours: Neighbours
) -> None:
    ids = neighbours("q", 7)
    queue.enqueue_many(NewMessage(id=id, deadline=clock.now + n * MS) for n, id in reversed(list(enumerate(ids))))
    assert [message.id for message in queue.dequeue(limit=5)] == ids[:5]
    assert [message.id for message in queue.dequeue(limit=5)] == ids[5:]


def test_without_a_deadline_the_due_time_is_the_urgency(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="in two hours", delay=timedelta(hours=2))
    queue.enqueue(id="in one hour", delay=timedelta(hours=1))
    queue.enqueue(id="now")
    clock.advance(timedelta(hours=3))
    queue.enqueue(id="in three hours")
    assert drained(queue) == ["now", "in one hour", "in two hours", "in three hours"]


def test_a_message_that_is_due_first_may_be_less_urgent(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="due first", delay=SECOND, deadline=clock.now + timedelta(days=2))
    queue.enqueue(id="due last", delay=2 * SECOND, deadline=clock.now + timedelta(days=1))
    clock.advance(2 * SECOND)
    assert drained(queue) == ["due last", "due first"]


def test_among_equal_deadlines_the_first_enqueued_message_is_first(
    queue: Queue, clock: VirtualClock, neighbours: Neighbours
) -> None:
    ids = neighbours("q", 20)
    shuffled = ids[::2] + ids[::-2]
    for id in shuffled:
        queue.enqueue(id=id, deadline=clock.now)
    assert drained(queue) == shuffled


def test_among_equal_deadlines_in_one_call_the_first_message_of_the_call_is_first(
    queue: Queue, neighbours: Neighbours
) -> None:
    ids = neighbours("q", 20)[::-1]
    queue.enqueue_many(NewMessage(id=id) for id in ids)
    assert drained(queue) == ids


def test_a_message_keeps_its_place_among_equals_through_retries(
    queue: Queue, clock: VirtualClock, neighbours: Neighbours
) -> None:
    first, second, third = neighbours("q", 3)
    for id in (first, second, third):
        queue.enqueue(id=id)
    [message] = queue.dequeue()
    message.fail(retry_in=timedelta(0))
    [message] = queue.dequeue()
    clock.advance(timedelta(seconds=30))
    assert drained(queue) == [first, second, third]


def test_a_message_without_a_deadline_never_outranks_a_deadline_at_the_same_millisecond(
    queue: Queue, clock: VirtualClock, neighbours: Neighbours
) -> None:
    without, with_deadline, later = neighbours("q", 3)
    queue.enqueue(id=without)
    queue.enqueue(id=later, deadline=clock.now + MS)
    queue.enqueue(id=with_deadline, deadline=clock.now)
    assert drained(queue) == [with_deadline, without, later]


def test_deadlines_before_1970_work_like_later_deadlines(
    queue: Queue, clock: VirtualClock, neighbours: Neighbours
) -> None:
    moments = [
        clock.now + timedelta(days=365 * 1000),
        clock.now,
        datetime(1970, 1, 1, tzinfo=UTC) + MS,
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC) - MS,
        datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
        datetime(1, 1, 1, 0, 0, 0, 1000, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
    ]
    ids = neighbours("q", len(moments))
    for id, moment in zip(ids, moments, strict=True):
        queue.enqueue(id=id, deadline=moment)
        assert queue.get(id).deadline == moment
    assert drained(queue) == ids[::-1]


def test_neighbouring_milliseconds_differ_at_both_ends_of_the_range(queue: Queue, neighbours: Neighbours) -> None:
    ends = [datetime.max.replace(tzinfo=UTC, microsecond=999_000), datetime(1, 1, 1, 0, 0, 0, 2000, tzinfo=UTC)]
    ids = neighbours("q", 4)
    for end, (second, first) in zip(ends, [ids[:2], ids[2:]], strict=True):
        queue.enqueue(id=second, deadline=end)
        queue.enqueue(id=first, deadline=end - MS)
    assert drained(queue) == [ids[3], ids[2], ids[1], ids[0]]


def test_a_relative_deadline_counts_from_the_enqueue(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="priority", deadline=timedelta(days=-3650))
    queue.enqueue(id="soon", deadline=timedelta(hours=1), delay=timedelta(minutes=1))
    assert queue.get("priority").deadline == clock.now - timedelta(days=3650)
    assert queue.get("soon").deadline == clock.now + timedelta(hours=1)


@pytest.mark.parametrize("deadline", [timedelta(days=365 * 150_000), timedelta(days=-365 * 150_000)])
def test_a_relative_deadline_beyond_the_exact_range_of_numbers_is_refused(queue: Queue, deadline: timedelta) -> None:
    with pytest.raises(InvalidArgument, match="deadline"):
        queue.enqueue(deadline=deadline)


def test_across_shards_the_most_urgent_head_is_first(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue_many(NewMessage(id=f"m{n}", deadline=clock.now + n * 7919 % 100 * SECOND) for n in range(100))
    expected = sorted(range(100), key=lambda n: n * 7919 % 100)
    assert drained(queue) == [f"m{n}" for n in expected]


@pytest.mark.tickwheel(shards=4)
def test_across_shards_a_change_of_urgency_by_another_client_applies_a_tenth_of_a_second_later(
    tw: Tickwheel, clock: VirtualClock, engine: PrivateServer
) -> None:
    queue, ids = tw.queue("q"), [f"m{n}" for n in range(100)]
    queue.enqueue_many(NewMessage(id=id, deadline=clock.now + n * SECOND) for n, id in enumerate(ids))
    # This dequeue caches the heads of all shards; m1 is the most urgent.
    assert [message.id for message in queue.dequeue()] == ["m0"]
    elsewhere = next(id for id in reversed(ids) if shard_of("q", id.encode(), 4) != shard_of("q", b"m1", 4))
    with Tickwheel(engine.url, namespace=tw._context.namespace, clock=FRAGMENT) as other:
        other.queue("q").reschedule(elsewhere, deadline=clock.now)
    known_since = time.monotonic()
    eventually(lambda: time.monotonic() > known_since + 0.1, "the cached heads have expired")
    assert [message.id for message in queue.dequeue()] == [elsewhere]


@pytest.mark.tickwheel(shards=4)
@pytest.mark.parametrize("where", [None, {"gpu": "a"}], ids=["all", "filtered"])
def test_messages_on_a_shard_that_was_empty_fill_a_call(
    tw: Tickwheel, clock: VirtualClock, engine: PrivateServer, where: dict[str, str] | None
) -> None:
    queue = tw.queue("q")
    one_of: dict[int, str] = {}
    for n in range(100):
        one_of.setdefault(shard_of("q", b"m%d" % n, 4), f"m{n}")
    first, second, *others = one_of.values()
    for id in (first, second):
        queue.enqueue(id=id, deadline=clock.now, metadata={"gpu": "a"})
    assert len(queue.dequeue(where=where)) == 1
    # This dequeue caches that one shard has a message, and that the others are empty.
    with Tickwheel(engine.url, namespace=tw._context.namespace, clock=FRAGMENT) as other:
        for id in others:
            other.queue("q").enqueue(id=id, deadline=clock.now, metadata={"gpu": "a"})
    assert len(queue.dequeue(limit=10, where=where)) == 3
    assert queue.dequeue(limit=10, where=where) == []


def test_a_limit_above_the_number_of_messages_empties_all_shards(queue: Queue) -> None:
    queue.enqueue_many(NewMessage(id=f"m{n}") for n in range(100))
    assert {message.id for message in queue.dequeue(limit=1_000)} == {f"m{n}" for n in range(100)}


def test_reschedule_changes_the_order(queue: Queue, clock: VirtualClock, neighbours: Neighbours) -> None:
    first, second, third = neighbours("q", 3)
    for n, id in enumerate((first, second, third)):
        queue.enqueue(id=id, deadline=clock.now + (n + 5) * SECOND)
    queue.reschedule(third, deadline=clock.now + SECOND)
    queue.reschedule(first, deadline=timedelta(minutes=1))
    assert drained(queue) == [third, second, first]


def test_a_message_without_a_deadline_gets_its_urgency_from_its_new_due_time(
    queue: Queue, clock: VirtualClock, neighbours: Neighbours
) -> None:
    first, second = neighbours("q", 2)
    queue.enqueue(id=first, delay=SECOND)
    queue.enqueue(id=second, delay=2 * SECOND)
    queue.reschedule(first, delay=3 * SECOND)
    clock.advance(3 * SECOND)
    assert drained(queue) == [second, first]


def test_a_deadline_stays_when_the_due_time_changes(queue: Queue, clock: VirtualClock) -> None:
    deadline = clock.now + timedelta(minutes=5)
    queue.enqueue(id="m", delay=SECOND, deadline=deadline)
    queue.reschedule("m", delay=timedelta(hours=1))
    assert queue.get("m").deadline == deadline


def test_a_new_deadline_does_not_change_a_back_off(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="m")
    [message] = queue.dequeue()
    message.fail(retry_in=timedelta(minutes=1))
    change = queue.reschedule("m", deadline=clock.now)
    assert change.state == "invisible"
    assert queue.get("m").until == clock.now + timedelta(minutes=1)
