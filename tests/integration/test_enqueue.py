"""Enqueue stores what the caller passes, repeated calls change nothing, and all sizes up to the limits are accepted."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tickwheel import (
    IdConflict,
    InvalidArgument,
    MessageNotFound,
    NewMessage,
    PayloadTooLarge,
    Queue,
    QueueBlocked,
    Tickwheel,
    limits,
)
from tickwheel.operations.dequeue import Dequeue
from tickwheel.testing import PrivateServer, VirtualClock
from tickwheel.testing.virtual_clock import FRAGMENT

pytestmark = pytest.mark.integration

Dump = Callable[[], dict[str, Any]]
MS = timedelta(milliseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EDGES = [0, 1, limits.INLINE_BYTES - 1, limits.INLINE_BYTES, limits.INLINE_BYTES + 1, limits.PAYLOAD_BYTES]


@pytest.mark.parametrize("size", EDGES)
@pytest.mark.parametrize("exclusive", [False, True])
def test_payloads_of_every_size_are_delivered_unchanged(tw: Tickwheel, size: int, exclusive: bool) -> None:
    queue = tw.create_queue("sized", exclusive_key="of" if exclusive else None)
    payload = bytes(n * 7 % 256 for n in range(size))
    value = "acme" if exclusive else None
    queue.enqueue(payload, id="m", metadata={"of": "acme"}, deadline=timedelta(hours=1), lease=timedelta(seconds=9))
    assert queue.get("m", value).payload == payload
    [message] = queue.dequeue()
    assert message.payload == payload
    message.fail("boom", retry_in=timedelta(0))
    assert queue.get("m", value).payload == payload
    [message] = queue.dequeue()
    assert message.payload == payload
    message.complete()
    assert queue.get("m", value).payload == b""


@pytest.mark.parametrize(
    "invalid", [{"payload": bytes(limits.PAYLOAD_BYTES + 1)}, {"delay": -MS}, {"max_attempts": 0}, {"priority": 10}]
)
@pytest.mark.parametrize("count", [1, 2, 200])
def test_an_invalid_message_creates_no_queue(tw: Tickwheel, invalid: dict[str, Any], count: int) -> None:
    with pytest.raises(InvalidArgument):
        tw.queue("new").enqueue_many([*[NewMessage(metadata={"a": "b"})] * (count - 1), NewMessage(**invalid)])
    assert tw.queues() == []
    assert tw.queue("new").enqueue().created


@pytest.mark.parametrize("size", [limits.INLINE_BYTES, limits.INLINE_BYTES + 1])
@pytest.mark.parametrize("end", ["complete", "cancel", "retire"])
def test_a_large_payload_is_stored_separately_and_deleted_with_its_message(
    queue: Queue, clock: VirtualClock, bodies: Callable[[], int], size: int, end: str
) -> None:
    queue.enqueue(bytes(size), id="m", max_attempts=1)
    assert bodies() == (1 if size > limits.INLINE_BYTES else 0)
    if end == "cancel":
        queue.cancel("m")
    else:
        [message] = queue.dequeue()
        if end == "complete":
            message.complete()
        else:
            message.fail()
            assert queue.get("m").payload == bytes(size)
            clock.advance(timedelta(days=7))
    assert bodies() == 0


@pytest.fixture
def bodies(dump: Dump) -> Callable[[], int]:
    """Return the number of large payloads that the server keeps."""
    return lambda: sum(len(stored) for key, stored in dump().items() if key.endswith(":bodies"))


LARGE = bytes(limits.INLINE_BYTES + 1)


def test_a_large_payload_of_a_message_that_is_not_added_is_not_stored(
    tw: Tickwheel, queue: Queue, bodies: Callable[[], int]
) -> None:
    queue.enqueue(LARGE, id="m")
    assert not queue.enqueue(LARGE, id="m").created
    with pytest.raises(IdConflict):
        queue.enqueue(LARGE + b"x", id="m")
    assert [result.created for result in queue.enqueue_many([NewMessage(LARGE, id="n")] * 2)] == [True, False]
    assert bodies() == 2
    queue.dequeue()[0].complete()
    assert not queue.enqueue(LARGE, id="m").created
    assert bodies() == 1
    assert [message.payload for message in queue.dequeue()] == [LARGE]


def test_a_refused_call_leaves_no_large_payload(
    tw: Tickwheel, queue: Queue, bodies: Callable[[], int], clock: VirtualClock
) -> None:
    queue.enqueue(LARGE, id="there", delay=timedelta(hours=1))
    with pytest.raises(InvalidArgument, match="days"):
        queue.enqueue(LARGE, id="m", due=clock.now + timedelta(days=5 * 365 + 1))
    queue.block(enqueue=True)
    with pytest.raises(QueueBlocked):
        queue.enqueue_many([NewMessage(LARGE, id="m"), NewMessage(LARGE, id="there", delay=timedelta(hours=1))])
    assert bodies() == 1
    assert queue.get("there").payload == LARGE


def test_large_payloads_reach_a_server_that_has_lost_its_scripts(
    queue: Queue, server: Any, bodies: Callable[[], int]
) -> None:
    queue.enqueue(LARGE, id="m")
    server.script_flush()
    queue.enqueue(LARGE, id="n")
    assert bodies() == 2


def test_a_message_whose_large_payload_is_deleted_before_it_is_read_is_not_delivered(
    tw: Tickwheel, tickwheel_server: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = tw.create_queue("exclusive", exclusive_key="of")
    queue.enqueue_many(NewMessage(LARGE, id=id_, metadata={"of": "acme"}) for id_ in ("m", "n"))
    original = Dequeue._build_messages

    with Tickwheel(tickwheel_server.url, namespace=tw._context.namespace, clock=FRAGMENT) as other:

        def cancelled_first(dequeue: Dequeue, shard: int, *more: Any) -> Any:
            if other.queue("exclusive").get("m", "acme").state == "running":
                other.queue("exclusive").cancel("m", "acme")
            return (yield from original(dequeue, shard, *more))

        monkeypatch.setattr(Dequeue, "_build_messages", cancelled_first)
        assert queue.dequeue() == []
        # The exclusive value of the message is free immediately.
        assert [message.id for message in queue.dequeue()] == ["n"]


def test_a_payload_over_the_limit_is_refused(tw: Tickwheel, dump: Dump) -> None:
    small, usual = tw.create_queue("small", payload_limit=10), tw.create_queue("usual")
    large = tw.create_queue("large", payload_limit=limits.PAYLOAD_BYTES_MAX)
    before = dump()
    for queue, size in ((small, 11), (usual, limits.PAYLOAD_BYTES + 1), (large, limits.PAYLOAD_BYTES_MAX + 1)):
        with pytest.raises(PayloadTooLarge, match=f"{size} bytes, at most {size - 1}"):
            queue.enqueue(bytes(size))
    assert dump() == before
    large.enqueue(bytes(limits.PAYLOAD_BYTES_MAX), id="m")
    assert len(large.dequeue()[0].payload) == limits.PAYLOAD_BYTES_MAX


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_bytes_like_type_is_a_payload(queue: Queue, kind: Callable[[bytes], Any]) -> None:
    queue.enqueue(kind(b"payload"), id="m")
    assert queue.get("m").payload == b"payload"


def test_a_message_has_all_fields_that_were_set(queue: Queue, clock: VirtualClock) -> None:
    metadata = {"k" * 64: "v" * 256, "é": "ü", "empty": ""}
    queue.enqueue(b"p", id="m", delay=timedelta(hours=1), deadline=clock.now, metadata=metadata)
    view = queue.get("m")
    assert (view.id, view.queue, view.state, view.payload) == ("m", "q", "invisible", b"p")
    assert (view.metadata, view.due, view.deadline) == (metadata, clock.now + timedelta(hours=1), clock.now)
    assert (view.attempt, view.version, view.exclusive_value) == (0, 1, None)


def test_messages_without_an_id_get_an_id_that_sorts_by_time(queue: Queue) -> None:
    ids = [queue.enqueue().id for _ in range(50)] + [result.id for result in queue.enqueue_many([NewMessage()] * 50)]
    assert len(set(ids)) == 100
    assert {len(id) for id in ids} == {20}
    assert [id[:10] for id in ids] == sorted(id[:10] for id in ids)


@pytest.mark.parametrize("state", ["invisible", "pending", "running", "completed", "cancelled", "errored"])
def test_a_repeated_message_changes_nothing_and_its_state_is_returned(
    queue: Queue, bring: Callable[..., Any], dump: Dump, state: str
) -> None:
    bring(state, queue)
    before = dump()
    options: dict[str, dict[str, Any]] = {"invisible": {"delay": timedelta(hours=1)}, "errored": {"max_attempts": 1}}
    result = queue.enqueue(b"payload", id="m", **options.get(state, {}))
    assert (result.id, result.state, result.created) == ("m", state, False)
    assert dump() == before


def test_a_repeated_message_with_a_delay_is_the_same_message_though_its_delay_would_end_later(
    queue: Queue, clock: VirtualClock
) -> None:
    queue.enqueue(b"p", id="m", delay=timedelta(hours=1), deadline=timedelta(hours=2))
    due = queue.get("m").due
    clock.advance(timedelta(minutes=30))
    assert not queue.enqueue(b"p", id="m", delay=timedelta(hours=1), deadline=timedelta(hours=2)).created
    assert queue.get("m").due == due


OTHER: dict[str, dict[str, Any]] = {
    "payload": {"payload": b"other"},
    "payload of another size": {"payload": bytes(5_000)},
    "delay": {"delay": timedelta(hours=2)},
    "no delay": {"delay": None},
    "deadline": {"deadline": timedelta(hours=3)},
    "no deadline": {"deadline": None},
    "metadata": {"metadata": {"a": "c"}},
    "no metadata": {"metadata": None},
    "lease": {"lease": timedelta(minutes=9)},
    "max_attempts": {"max_attempts": 9},
}


@pytest.mark.parametrize("other", OTHER)
def test_other_content_under_the_same_id_is_a_conflict(queue: Queue, dump: Dump, other: str) -> None:
    options: dict[str, Any] = {
        "payload": b"p",
        "delay": timedelta(hours=1),
        "deadline": timedelta(hours=2),
        "metadata": {"a": "b"},
    }
    queue.enqueue(id="m", **options)
    before = dump()
    with pytest.raises(IdConflict, match="has a message 'm' with other content"):
        queue.enqueue(id="m", **options | OTHER[other])
    assert dump() == before


def test_a_batch_with_a_conflict_adds_all_other_messages(queue: Queue) -> None:
    queue.enqueue(b"first", id="m5")
    with pytest.raises(IdConflict, match="'m5'") as refused:
        queue.enqueue_many(NewMessage(b"second", id=f"m{n}") for n in range(10))
    results = refused.value.results
    assert [n for n, result in enumerate(results) if result is None] == [5]
    assert [result.id for result in results if result is not None] == [f"m{n}" for n in range(10) if n != 5]
    assert queue.counts()["pending"] == 10
    assert queue.get("m5").payload == b"first"


def test_one_message_twice_in_a_batch_is_one_message(queue: Queue) -> None:
    first, second = queue.enqueue_many([NewMessage(b"p", id="m"), NewMessage(b"p", id="m")])
    assert (first.created, second.created) == (True, False)
    with pytest.raises(IdConflict):
        queue.enqueue_many([NewMessage(b"p", id="n"), NewMessage(b"other", id="n")])
    assert queue.get("n").payload == b"p"


def test_the_results_of_a_batch_are_in_the_order_given(queue: Queue) -> None:
    results = queue.enqueue_many(NewMessage(id=f"m{n}", delay=MS if n % 2 else None) for n in range(50))
    assert [(r.id, r.state) for r in results] == [(f"m{n}", "invisible" if n % 2 else "pending") for n in range(50)]


def test_a_batch_is_split_into_calls_of_a_limited_size(queue: Queue) -> None:
    results = queue.enqueue_many(NewMessage(bytes(30_000), id=f"large{n}") for n in range(100))
    results += queue.enqueue_many(NewMessage(id=f"m{n}", metadata={str(k): "v" for k in range(16)}) for n in range(500))
    results += queue.enqueue_many(NewMessage(id=f"n{n}") for n in range(2_500))
    assert len(results) == 3_100
    assert queue.counts()["pending"] == 3_100
    assert queue.enqueue_many([]) == []


def test_a_batch_without_messages_creates_no_queue(tw: Tickwheel) -> None:
    assert tw.queue("absent").enqueue_many([]) == []
    assert tw.queue("absent").enqueue_many(iter(())) == []
    assert "absent" not in {queue.name for queue in tw.queues()}


def test_an_invalid_message_ends_its_batch_before_its_call_is_sent(queue: Queue) -> None:
    queue.enqueue(id="there")
    with pytest.raises(InvalidArgument, match="payload must be bytes or str"):
        queue.enqueue_many([NewMessage(id="m"), NewMessage(7)])  # type: ignore[arg-type]
    with pytest.raises(MessageNotFound):
        queue.get("m")


def test_an_error_of_the_iterable_of_messages_reaches_the_caller_unchanged(queue: Queue) -> None:
    def messages() -> Iterator[NewMessage]:
        # More than one request of the service.
        yield from (NewMessage() for _ in range(1_500))
        raise ValueError("of the caller")

    with pytest.raises(ValueError, match="of the caller"):
        queue.enqueue_many(messages())


def test_the_latest_due_time_is_five_years_ahead(queue: Queue, clock: VirtualClock, dump: Dump) -> None:
    limit = timedelta(milliseconds=limits.DELAY_MS_MAX)
    queue.enqueue(id="delay", delay=limit)
    queue.enqueue(id="due", due=clock.now + limit)
    before = dump()
    with pytest.raises(InvalidArgument, match="delay"):
        queue.enqueue(delay=limit + MS)
    with pytest.raises(InvalidArgument, match="due"):
        queue.enqueue(due=clock.now + limit + MS)
    with pytest.raises(InvalidArgument, match="due"):
        queue.reschedule("due", due=clock.now + limit + MS)
    assert dump() == before
    clock.advance(limit - MS)
    assert queue.counts()["pending"] == 0
    clock.advance(MS)
    assert queue.counts()["pending"] == 2


def test_a_due_time_too_far_ahead_refuses_no_other_message_and_the_error_names_the_message(
    tw: Tickwheel, queue: Queue, clock: VirtualClock
) -> None:
    too_far = clock.now + timedelta(milliseconds=limits.DELAY_MS_MAX + 1)
    queue.enqueue(b"first", id="m30")
    new = [NewMessage(id=f"m{n}", due=too_far if n in (7, 1_500) else None) for n in range(2_000)]
    new[7].payload = bytes(5_000)
    with pytest.raises(InvalidArgument, match="due of message 'm7' and 1 more must be within 1825 days") as refused:
        queue.enqueue_many(new)
    assert "the queue has a message 'm30' with other content; 1997 of 2000 messages were enqueued" in str(refused.value)
    assert refused.value.summary == "; 1997 of 2000 messages were enqueued"
    results = refused.value.results
    assert [n for n, result in enumerate(results) if result is None] == [7, 30, 1_500]
    assert queue.counts()["pending"] == 1_998
    with pytest.raises(InvalidArgument, match="; 0 of 2000 messages were enqueued, 1997 existed already"):
        queue.enqueue_many(new)
    # Repeated without the metadata, the enqueue changes nothing.
    again = queue.enqueue_many(one for n, one in enumerate(new) if results[n] is not None)
    assert not any(result.created for result in again)


def test_an_existing_message_stays_when_the_servers_clock_steps_back(queue: Queue, clock: VirtualClock) -> None:
    due = clock.now + timedelta(milliseconds=limits.DELAY_MS_MAX)
    queue.enqueue(id="m", due=due)
    clock.set(clock.now - timedelta(hours=1))
    assert not queue.enqueue(id="m", due=due).created


def test_a_delay_between_two_milliseconds_ends_at_the_later_millisecond(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="m", delay=timedelta(microseconds=1))
    assert queue.get("m").due == clock.now + MS
    queue.enqueue(id="n", due=clock.now + timedelta(microseconds=1))
    assert queue.get("n").due == clock.now + MS


@pytest.mark.parametrize("level", [2, 3, 4, 5])
@pytest.mark.parametrize("edge", [-1, 0, 1])
def test_delays_at_the_edges_of_every_level_of_the_wheel_end_on_time(
    queue: Queue, clock: VirtualClock, level: int, edge: int
) -> None:
    slot, start = 64**level, clock.now
    into = (start - EPOCH) // MS % slot
    dues = [start + (ms + edge) * MS for ms in (slot, 64 * slot, slot - into, 2 * slot - into)]
    queue.enqueue_many(NewMessage(due=due) for due in dues)
    for due in sorted(dues):
        for moment in (due - MS, due):
            clock.advance(max(moment - clock.now, timedelta(0)))
            assert queue.counts()["pending"] == sum(due <= clock.now for due in dues)
    # All messages that waited were less than a millisecond late.
    assert set(queue.lateness().promoted) <= {1}
