"""The trace of a message: two pairs of its metadata that are stored and delivered, and are not part of its content."""

from datetime import timedelta

import pytest

from tickwheel import IdConflict, InvalidArgument, NewMessage, Queue, Tickwheel, limits
from tickwheel.testing import VirtualClock

pytestmark = pytest.mark.integration

ONE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=1"}
OTHER = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}


@pytest.fixture(params=["plain", "exclusive", "named keys"])
def queue(request: pytest.FixtureRequest, tw: Tickwheel) -> Queue:
    return tw.create_queue(
        "q",
        exclusive_key=None if request.param == "plain" else "of",
        indexed=["region"] if request.param == "named keys" else None,
    )


def pairs(*more: dict[str, str]) -> dict[str, str]:
    metadata = {"of": "1", "region": "eu"}
    for extra in more:
        metadata |= extra
    return metadata


def test_the_trace_is_delivered_with_the_message(queue: Queue) -> None:
    queue.enqueue(id="m", metadata=pairs(ONE))
    [message] = queue.dequeue(where={"region": "eu"})
    assert message.metadata == pairs(ONE)


def test_the_trace_stays_the_same_over_attempts(queue: Queue, clock: VirtualClock) -> None:
    queue.enqueue(id="m", metadata=pairs(ONE), delay=timedelta(minutes=1))
    clock.advance(timedelta(minutes=1))
    queue.dequeue()[0].fail(retry_in=timedelta(seconds=5))
    clock.advance(timedelta(seconds=5))
    assert queue.dequeue()[0].metadata == pairs(ONE)


@pytest.mark.parametrize("again", [OTHER, {}], ids=["from another span", "without a trace"])
def test_a_repeated_message_with_another_trace_is_the_same_message_and_keeps_its_first_trace(
    queue: Queue, again: dict[str, str]
) -> None:
    assert queue.enqueue(b"x", id="m", metadata=pairs(ONE)).created
    assert not queue.enqueue(b"x", id="m", metadata=pairs(again)).created
    assert queue.dequeue()[0].metadata == pairs(ONE)


def test_a_message_without_a_trace_gets_none_by_being_enqueued_again(queue: Queue) -> None:
    queue.enqueue(id="m", metadata=pairs())
    assert not queue.enqueue(id="m", metadata=pairs(ONE)).created
    assert queue.dequeue()[0].metadata == pairs()


def test_another_message_of_the_same_trace_is_a_conflict(queue: Queue) -> None:
    queue.enqueue(b"x", id="m", metadata=pairs(ONE))
    with pytest.raises(IdConflict):
        queue.enqueue(b"y", id="m", metadata=pairs(ONE))


@pytest.mark.parametrize("key", ["traceparent", "tracestate"])
def test_a_filter_cannot_name_the_trace(queue: Queue, key: str) -> None:
    with pytest.raises(InvalidArgument, match=key):
        queue.dequeue(where={key: ONE[key]})
    with pytest.raises(InvalidArgument, match=key):
        queue.depth({key: ONE[key]})


@pytest.mark.parametrize("key", ["traceparent", "tracestate"])
def test_a_queue_can_neither_index_the_trace_nor_be_exclusive_by_it(tw: Tickwheel, key: str) -> None:
    with pytest.raises(InvalidArgument, match=key):
        tw.create_queue("q", indexed=[key])
    with pytest.raises(InvalidArgument, match=key):
        tw.create_queue("q", exclusive_key=key)


def test_the_trace_does_not_count_towards_the_limit_of_pairs(tw: Tickwheel) -> None:
    pairs_max = {f"key{n}": "v" for n in range(limits.PAIRS_MAX)}
    tw.queue("q").enqueue(metadata=pairs_max | ONE)
    assert tw.queue("q").dequeue(where={"key15": "v"})[0].metadata == pairs_max | ONE
    with pytest.raises(InvalidArgument, match="more than 16 pairs"):
        tw.queue("q").enqueue(metadata=pairs_max | {"one": "more"} | ONE)


def test_a_message_with_only_a_trace_equals_a_message_without_metadata(tw: Tickwheel) -> None:
    queue = tw.queue("q")
    assert queue.enqueue(b"x", id="m", metadata=ONE, max_attempts=3).created
    assert not queue.enqueue(b"x", id="m", max_attempts=3).created
    assert queue.get("m").metadata == queue.dequeue()[0].metadata == ONE


def test_each_message_of_a_batch_has_its_own_trace(queue: Queue) -> None:
    queue.enqueue_many(
        NewMessage(id=f"m{n}", metadata=pairs({"of": str(n)}, trace)) for n, trace in enumerate([ONE, OTHER, {}])
    )
    pairs_by_id = {message.id: message.metadata for message in queue.dequeue(10)}
    assert pairs_by_id == {
        "m0": pairs({"of": "0"}, ONE),
        "m1": pairs({"of": "1"}, OTHER),
        "m2": pairs({"of": "2"}),
    }
