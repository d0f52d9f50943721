"""Exclusive queues: at most one message of a value runs, without locks in the code of the workers."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tickwheel import InvalidArgument, LeaseLost, Message, NewMessage, Queue, Tickwheel
from tickwheel.testing import VirtualClock

pytestmark = pytest.mark.integration

Dump = Callable[[], dict[str, Any]]
LEASE = timedelta(seconds=30)


@pytest.fixture
def videos(tw: Tickwheel) -> Queue:
    """A queue that encodes at most one video of a project at a time."""
    return tw.create_queue("videos", exclusive_key="project", max_attempts=2, backoff=timedelta(seconds=5))


def add(queue: Queue, id: str, project: str = "p", **options: Any) -> None:
    queue.enqueue(id=id, metadata={"project": project} | options.pop("metadata", {}), **options)


def ids(messages: list[Message]) -> list[str]:
    return [message.id for message in messages]


def take(queue: Queue, **options: Any) -> Message:
    [message] = queue.dequeue(**options)
    return message


@pytest.mark.parametrize("metadata", [None, {}, {"Project": "p"}, {"other": "p"}])
def test_a_message_without_the_exclusive_key_is_refused(
    videos: Queue, dump: Dump, metadata: dict[str, str] | None
) -> None:
    before = dump()
    with pytest.raises(InvalidArgument, match="'videos' is exclusive by 'project': every message needs this key"):
        videos.enqueue(id="m", metadata=metadata)
    assert dump() == before


def test_a_second_worker_gets_the_less_urgent_message_while_the_value_of_the_more_urgent_is_leased(
    videos: Queue, clock: VirtualClock
) -> None:
    add(videos, "msg_0", "project-1", deadline=clock.now)
    add(videos, "msg_1", "project-1", deadline=clock.now + timedelta(seconds=1))
    add(videos, "msg_2", "project-2", deadline=clock.now + timedelta(hours=1))
    assert take(videos, worker="worker 1", consistency="exact").id == "msg_0"
    assert take(videos, worker="worker 2", consistency="exact").id == "msg_2"
    assert videos.dequeue(worker="worker 3") == []
    assert videos.get("msg_1", "project-1").state == "pending"


def test_one_call_leases_at_most_one_message_of_a_value(videos: Queue) -> None:
    for n in range(5):
        add(videos, f"a{n}", "a")
        add(videos, f"b{n}", "b")
    assert sorted(ids(videos.dequeue(limit=10))) == ["a0", "b0"]
    assert videos.dequeue(limit=10) == []


def test_a_filtered_call_leases_at_most_one_message_of_a_value(videos: Queue) -> None:
    for n in range(5):
        add(videos, f"a{n}", "a", metadata={"gpu": "a100"})
        add(videos, f"b{n}", "b", metadata={"gpu": "a100"})
    assert sorted(ids(videos.dequeue(limit=10, where={"gpu": "a100"}))) == ["a0", "b0"]
    assert videos.dequeue(limit=10, where={"gpu": "a100"}) == []


def test_an_invisible_message_never_holds_its_value(videos: Queue, clock: VirtualClock) -> None:
    add(videos, "later", delay=timedelta(hours=1), deadline=clock.now - timedelta(days=1))
    add(videos, "now")
    assert take(videos).id == "now"


def test_a_message_that_waits_behind_its_value_holds_nothing(videos: Queue) -> None:
    add(videos, "first")
    first = take(videos)
    add(videos, "second")
    first.complete()
    add(videos, "third", deadline=timedelta(days=-1))
    assert take(videos).id == "third"


FREE: dict[str, Callable[[Queue, VirtualClock, Message], object]] = {
    "complete": lambda queue, clock, message: message.complete(),
    "complete_many": lambda queue, clock, message: queue.complete_many([message]),
    "fail with a back-off": lambda queue, clock, message: message.fail(retry_in=timedelta(hours=1)),
    "cancel with release": lambda queue, clock, message: queue.cancel("first", "p", release=True),
}


@pytest.mark.parametrize("how", FREE)
def test_the_exclusive_value_is_free_after_each_end_of_a_lease(videos: Queue, clock: VirtualClock, how: str) -> None:
    add(videos, "first")
    message = take(videos)
    add(videos, "second")
    assert videos.dequeue() == []
    FREE[how](videos, clock, message)
    assert take(videos).id == "second"


def test_the_value_is_free_after_a_fail_without_back_off_and_the_more_urgent_goes_first(videos: Queue) -> None:
    add(videos, "first")
    message = take(videos)
    add(videos, "second")
    message.fail(retry_in=timedelta(0))
    assert ids(videos.dequeue(limit=10)) == ["first"]


def test_after_a_fail_without_back_off_a_waiting_message_that_is_more_urgent_goes_first(
    videos: Queue, clock: VirtualClock
) -> None:
    add(videos, "first")
    message = take(videos)
    add(videos, "second", deadline=clock.now - timedelta(days=1))
    message.fail(retry_in=timedelta(0))
    assert ids(videos.dequeue(limit=10)) == ["second"]


def test_the_value_is_free_once_the_lease_has_ended(videos: Queue, clock: VirtualClock) -> None:
    add(videos, "first", deadline=clock.now + timedelta(days=1))
    take(videos)
    add(videos, "second")
    clock.advance(LEASE)
    assert ids(videos.dequeue(limit=10)) == ["second"]


def test_the_value_is_free_once_its_message_is_errored(videos: Queue, clock: VirtualClock) -> None:
    add(videos, "failed", "a", max_attempts=1)
    add(videos, "expired", "b", max_attempts=1)
    for message in videos.dequeue(limit=10):
        if message.id == "failed":
            message.fail()
    add(videos, "behind a", "a")
    add(videos, "behind b", "b")
    clock.advance(LEASE)
    assert videos.counts()["errored"] == 2
    assert sorted(ids(videos.dequeue(limit=10))) == ["behind a", "behind b"]


def test_a_redriven_message_waits_behind_the_running_message(videos: Queue) -> None:
    add(videos, "first", max_attempts=1)
    take(videos).fail()
    add(videos, "second")
    second = take(videos)
    videos.redrive("first", "p")
    assert videos.dequeue() == []
    second.complete()
    assert take(videos).id == "first"


def test_a_cancelled_running_message_holds_its_value_until_its_lease_ends(videos: Queue, clock: VirtualClock) -> None:
    add(videos, "first")
    take(videos)
    add(videos, "second")
    assert videos.cancel("first", "p").state == "cancelled"
    assert videos.counts() | {"cancelled": 1, "running": 0} == videos.counts()
    clock.advance(LEASE - timedelta(milliseconds=1))
    assert videos.dequeue() == []
    clock.advance(timedelta(milliseconds=1))
    assert take(videos).id == "second"
    assert videos.get("first", "p").state == "cancelled"


NEXT_CALL: dict[str, Callable[[Message], object]] = {
    "complete": lambda message: message.complete(),
    "fail": lambda message: message.fail(),
    "release": lambda message: message.release(),
    "extend": lambda message: message.extend(timedelta(minutes=5)),
}


@pytest.mark.parametrize("call", NEXT_CALL)
def test_a_cancelled_running_message_holds_its_value_until_its_workers_next_call(videos: Queue, call: str) -> None:
    add(videos, "first")
    message = take(videos)
    add(videos, "second")
    videos.cancel("first", "p")
    assert videos.dequeue() == []
    with pytest.raises(LeaseLost):
        NEXT_CALL[call](message)
    assert take(videos).id == "second"
    assert videos.get("first", "p").state == "cancelled"


def test_another_workers_call_does_not_free_the_value_of_a_cancelled_message(
    videos: Queue, clock: VirtualClock
) -> None:
    add(videos, "first")
    earlier = take(videos)
    clock.advance(LEASE)
    take(videos)
    add(videos, "second")
    videos.cancel("first", "p")
    with pytest.raises(LeaseLost):
        earlier.complete()
    assert videos.dequeue() == []


def test_cancelling_again_frees_a_held_value(videos: Queue) -> None:
    add(videos, "first")
    take(videos)
    add(videos, "second")
    videos.cancel("first", "p")
    again = videos.cancel("first", "p")
    assert (again.changed, videos.dequeue()) == (False, [])
    videos.cancel("first", "p", release=True)
    assert take(videos).id == "second"


def test_the_retention_of_a_cancelled_message_begins_when_it_frees_its_value(
    videos: Queue, clock: VirtualClock
) -> None:
    add(videos, "first")
    take(videos)
    videos.cancel("first", "p")
    clock.advance(LEASE + timedelta(minutes=10) - timedelta(milliseconds=1))
    assert videos.get("first", "p").state == "cancelled"
    clock.advance(timedelta(milliseconds=1))
    assert videos.counts()["cancelled"] == 0


def test_cancelling_a_waiting_message_leaves_the_value_with_the_running_message(videos: Queue) -> None:
    add(videos, "first")
    first = take(videos)
    add(videos, "second")
    add(videos, "third")
    videos.cancel("second", "p")
    assert videos.dequeue() == []
    first.complete()
    assert take(videos).id == "third"


def test_cancelling_the_head_of_a_free_value_makes_the_next_message_its_head(videos: Queue) -> None:
    add(videos, "first")
    add(videos, "second")
    videos.cancel("first", "p")
    assert take(videos).id == "second"


def test_rescheduling_the_head_of_a_free_value_makes_the_next_message_its_head(
    videos: Queue, clock: VirtualClock
) -> None:
    add(videos, "first")
    add(videos, "second")
    videos.reschedule("first", "p", deadline=clock.now + timedelta(days=1))
    assert take(videos).id == "second"


def test_a_more_urgent_arrival_becomes_the_head_of_its_value(videos: Queue, clock: VirtualClock) -> None:
    add(videos, "first")
    add(videos, "urgent", deadline=clock.now - timedelta(days=1))
    add(videos, "third")
    order = []
    while messages := videos.dequeue(limit=10):
        order += ids(messages)
        videos.complete_many(messages)
    assert order == ["urgent", "first", "third"]


def test_one_id_under_two_values_is_two_messages(videos: Queue) -> None:
    add(videos, "same", "a", payload=b"of a")
    add(videos, "same", "b", payload=b"of b")
    videos.cancel("same", "a")
    assert (videos.get("same", "a").state, videos.get("same", "b").state) == ("cancelled", "pending")
    assert take(videos).payload == b"of b"


# Values that a separator, a prefix or a shortened hash could confuse.
VALUES = ["", "a", "a\0", "aa", "\0", "\0\1a", "{0}", "é", "e\u0301", "\x7f", "\uffff", "v" * 256, "v" * 255]


def test_values_are_compared_byte_by_byte(videos: Queue) -> None:
    for value in VALUES:
        add(videos, "first", value)
        add(videos, "second", value)
    running = []
    while messages := videos.dequeue(limit=100):
        running += messages
    assert sorted(message.exclusive_value or "" for message in running) == sorted(VALUES)
    assert {message.id for message in running} == {"first"}
    for value in VALUES:
        videos.cancel("first", value, release=True)
        assert [(message.id, message.exclusive_value) for message in videos.dequeue(limit=100)] == [("second", value)]


def test_messages_of_a_leased_value_are_found_by_filters_again_once_the_value_is_free(videos: Queue) -> None:
    add(videos, "first")
    first = take(videos)
    for n in range(200):
        add(videos, f"m{n}", metadata={"kind": str(n)})
    for n in range(200):
        # A filter parks each message of a leased value that it meets, until the value is free.
        assert videos.dequeue(where={"kind": str(n)}) == []
    first.complete()
    assert take(videos, where={"kind": "99"}).id == "m99"


def test_messages_of_a_leased_value_are_found_by_filters_again_though_others_with_their_pair_were_cancelled(
    videos: Queue,
) -> None:
    add(videos, "first")
    first = take(videos)
    for n in range(200):
        add(videos, f"a{n}", metadata={"kind": str(n)})
        add(videos, f"b{n}", metadata={"kind": str(n)})
    for n in range(200):
        videos.cancel(f"a{n}", "p")
    first.complete()
    assert take(videos, where={"kind": "99"}).id == "b99"


def test_a_filter_finds_the_more_urgent_message_though_it_is_not_the_head_of_its_value(
    videos: Queue, clock: VirtualClock
) -> None:
    add(videos, "head", "a", deadline=clock.now - timedelta(days=1))
    add(videos, "behind", "a", metadata={"gpu": "a100"})
    add(videos, "other", "b", metadata={"gpu": "a100"}, deadline=clock.now + timedelta(days=1))
    assert take(videos, where={"gpu": "a100"}, consistency="exact").id in ("behind", "other")
    assert "head" not in ids(videos.dequeue(limit=10, where={"gpu": "a100"}))


def test_a_queue_may_index_keys_other_than_its_exclusive_key(tw: Tickwheel) -> None:
    queue = tw.create_queue("q", exclusive_key="project", indexed=["gpu"])
    queue.enqueue_many(NewMessage(id=f"m{n}", metadata={"project": "p", "gpu": f"{n}"}) for n in range(3))
    assert ids(queue.dequeue(where={"gpu": "1"})) == ["m1"]
    with pytest.raises(InvalidArgument, match="does not index 'project'"):
        queue.dequeue(where={"project": "p"})
