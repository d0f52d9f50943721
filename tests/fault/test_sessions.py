"""A repeated call gets its stored answer and is not executed again, even if other calls came in between."""

from datetime import timedelta
from typing import Any

import pytest

from tickwheel import InvalidArgument, NewMessage, QueueBlocked, SessionExpired, Tickwheel
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
def test_a_repeated_request_returns_the_same_messages_with_any_wait_and_worker(
    tickwheel: Tickwheel, shards: int, consistency: str
) -> None:
    queue = tickwheel.create_queue("q")
    queue.enqueue_many(NewMessage() for _ in range(40))
    request: dict[str, Any] = {"limit": 40, "request_id": "w:1", "consistency": consistency}
    first = {message.token + message.id.encode() for message in queue.dequeue(**request)}
    others: list[dict[str, Any]] = [{}, {"worker": "successor"}, {"wait": timedelta(seconds=5)}]
    for other in others:
        again = queue.dequeue(**request, **other)
        assert {message.token + message.id.encode() for message in again} == first
    assert queue.counts()["running"] == len(first)


@pytest.mark.parametrize("shards", SHARDS)
@pytest.mark.parametrize(
    "other",
    [{"limit": 3}, {"where": {"of": "1"}}, {"lease": timedelta(minutes=1)}, {"consistency": "exact"}],
    ids=lambda other: str(*other),
)
@pytest.mark.parametrize("is_empty", [False, True], ids=["answered", "empty"])
def test_a_request_id_of_another_dequeue_is_refused_and_nothing_is_leased(
    tickwheel: Tickwheel, shards: int, other: dict[str, Any], is_empty: bool
) -> None:
    queue = tickwheel.create_queue("q")
    if not is_empty:
        queue.enqueue_many(NewMessage(metadata={"of": "1"}) for _ in range(2))
    first = queue.dequeue(2, request_id="w:1")
    queue.enqueue_many(NewMessage(metadata={"of": "1"}) for _ in range(2))
    changed: dict[str, Any] = {"limit": 2, "request_id": "w:1", **other}
    with pytest.raises(InvalidArgument, match="the request_id belongs to another call"):
        queue.dequeue(**changed)
    assert queue.counts()["running"] == len(first)
    assert [message.token for message in queue.dequeue(2, request_id="w:1")] == [message.token for message in first]


def test_only_calls_with_a_request_id_store_a_digest(tickwheel: Tickwheel, tickwheel_server: PrivateServer) -> None:
    queue = tickwheel.create_queue("q")
    queue.enqueue_many(NewMessage() for _ in range(2))
    [message] = queue.dequeue()
    message.fail("")
    assert len(session_keys(tickwheel, tickwheel_server)) == 1
    queue.dequeue(request_id="w:1")
    assert [key[key.index("session:") :] for key in session_keys(tickwheel, tickwheel_server) if "/" in key] == [
        "session:q/w",
        "session:q/w/0",
    ]


def test_an_answer_that_an_earlier_version_stored_without_a_digest_is_returned(
    tickwheel: Tickwheel, tickwheel_server: PrivateServer
) -> None:
    queue = tickwheel.create_queue("q")
    queue.enqueue_many(NewMessage() for _ in range(2))
    [first] = queue.dequeue(request_id="w:7")
    [digest] = [key for key in session_keys(tickwheel, tickwheel_server) if key.endswith("/0")]
    with tickwheel_server.client() as server:
        server.set(digest, (6).to_bytes(8) + bytes(16), ex=300)
        assert [message.token for message in queue.dequeue(request_id="w:7")] == [first.token]
        server.delete(digest)
    assert [message.token for message in queue.dequeue(request_id="w:7")] == [first.token]


@pytest.mark.parametrize("answer", [b"", bytes(12), bytes(15), bytes(17), bytes(16) + b"\0\5abc", b"\1" * 36])
def test_an_answer_of_another_kind_of_call_is_refused(
    tickwheel: Tickwheel, tickwheel_server: PrivateServer, answer: bytes
) -> None:
    queue = tickwheel.create_queue("q")
    queue.enqueue(b"")
    queue.dequeue(request_id="w:1")
    session, digest = session_keys(tickwheel, tickwheel_server)
    with tickwheel_server.client() as server:
        server.delete(digest)
        server.set(session, (1).to_bytes(8) + answer, ex=300)
    with pytest.raises(InvalidArgument, match="the request_id belongs to another call"):
        queue.dequeue(request_id="w:1")


def session_keys(tickwheel: Tickwheel, server: PrivateServer) -> list[str]:
    with server.client() as connected:
        return sorted(key.decode() for key in connected.scan_iter(f"{tickwheel._context.namespace}:*session:*"))


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
