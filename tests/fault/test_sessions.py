"""A repeated call gets its stored answer and is not executed again, even if other calls came in between."""

from datetime import timedelta

import pytest

from tickwheel import NewMessage, QueueBlocked, SessionExpired, Tickwheel
from tickwheel.storage.sharding import shard_of
from tickwheel.testing import PrivateServer
from tickwheel.testing.virtual_clock import FRAGMENT

pytestmark = pytest.mark.fault


def test_a_repeated_request_is_recognized_after_the_queue_was_changed(
    tickwheel: Tickwheel, tickwheel_server: PrivateServer
) -> None:
    work = tickwheel.create_queue("work")
    work.enqueue(b"a")
    work.enqueue(b"b")
    with Tickwheel(tickwheel_server.url, namespace=tickwheel._context.namespace, clock=FRAGMENT) as other:
        other.create_queue("work", max_attempts=7, update=True)
    first = work.dequeue(request_id="caller:1")
    again = work.dequeue(request_id="caller:1")
    following = work.dequeue(request_id="caller:2")
    assert [message.payload for message in first] == [b"a"]
    assert [message.token for message in again] == [message.token for message in first]
    assert [message.payload for message in following] == [b"b"]


SHARDS = [pytest.param(n, marks=pytest.mark.tickwheel(shards=n)) for n in (1, 4)]


@pytest.mark.parametrize("shards", SHARDS)
@pytest.mark.parametrize("consistency", ["heads", "exact"])
def test_a_repeated_request_returns_the_same_messages_with_any_limit(
    tickwheel: Tickwheel, shards: int, consistency: str
) -> None:
    queue = tickwheel.create_queue("q")
    queue.enqueue_many(NewMessage() for _ in range(40))
    first = {message.token + message.id.encode() for message in queue.dequeue(40, request_id="w:1")}
    for limit in (1, 5, 40):
        again = queue.dequeue(limit, request_id="w:1", consistency=consistency)
        assert {message.token + message.id.encode() for message in again} == first
    assert queue.counts()["running"] == len(first)


@pytest.mark.parametrize("shards", SHARDS)
def test_the_same_request_id_in_two_queues_is_two_requests(tickwheel: Tickwheel, shards: int) -> None:
    plain, exclusive = tickwheel.create_queue("plain"), tickwheel.create_queue("exclusive", exclusive_key="k")
    plain.enqueue(b"1", id="one")
    exclusive.enqueue(b"2", id="two", metadata={"k": "v"})
    assert [message.id for message in plain.dequeue(request_id="caller:1")] == ["one"]
    [message] = exclusive.dequeue(request_id="caller:1")
    assert (message.id, message.payload, message.exclusive_value) == ("two", b"2", "v")
    message.complete()
    assert plain.counts()["running"] == exclusive.counts()["completed"] == 1


@pytest.mark.parametrize("shards", SHARDS)
def test_request_numbers_may_start_at_zero(tickwheel: Tickwheel, shards: int) -> None:
    work = tickwheel.create_queue("work")
    work.enqueue(b"")
    first = work.dequeue(request_id="caller:0")
    assert [message.token for message in work.dequeue(request_id="caller:0")] == [first[0].token]
    assert work.dequeue(request_id="caller:1") == []


@pytest.mark.parametrize("shards", SHARDS)
def test_an_old_request_is_refused_because_a_newer_request_was_answered(tickwheel: Tickwheel, shards: int) -> None:
    work = tickwheel.create_queue("work")
    for n in range(3):
        work.enqueue(b"")
        assert work.dequeue(request_id=f"caller:{n}")
    with pytest.raises(SessionExpired, match="a newer call of this slot was answered"):
        work.dequeue(request_id="caller:1")


@pytest.mark.tickwheel(shards=4)
def test_a_late_copy_of_a_request_with_an_empty_answer_leases_nothing(tickwheel: Tickwheel) -> None:
    work = tickwheel.create_queue("work")
    assert work.dequeue(request_id="caller:1") == []
    work.enqueue(b"a")
    assert work.dequeue(request_id="caller:1") == []


@pytest.mark.tickwheel(shards=4)
def test_an_old_request_is_refused_by_shards_that_it_never_reached(tickwheel: Tickwheel) -> None:
    work = tickwheel.create_queue("work")
    # One message on each shard, so that a different shard answers each request.
    ids = {shard_of("work", f"m{n}".encode(), 4): f"m{n}" for n in range(40)}
    for n, shard in enumerate(sorted(ids)):
        work.enqueue(b"", id=ids[shard], deadline=timedelta(seconds=n))
    for sequence in (1, 2, 3):
        assert work.dequeue(request_id=f"caller:{sequence}")
    with pytest.raises(SessionExpired):
        work.dequeue(request_id="caller:1")
    assert work.counts()["running"] == 3


@pytest.mark.tickwheel(shards=4)
def test_dequeue_of_an_empty_blocked_queue_is_refused_on_any_number_of_shards(tickwheel: Tickwheel) -> None:
    work = tickwheel.create_queue("work")
    work.block()
    with pytest.raises(QueueBlocked):
        work.dequeue()
