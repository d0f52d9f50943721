"""A dequeue of several calls: each call does a bounded amount of work, and no leased message is lost between calls."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tickwheel import NewMessage, Queue, QueueBlocked, Tickwheel, limits
from tickwheel.operations.dequeue import Dequeue
from tickwheel.plan import Plan
from tickwheel.storage.sharding import shard_of
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

KIB = 1024
PAIRS = {f"k{n}": "v" for n in range(16)}


@pytest.fixture
def after_each_call(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[int], object]]:
    """Actions that run after each call, with the number of messages that the call has leased."""
    actions: list[Callable[[int], object]] = []
    build = Dequeue._build_messages

    def build_and_notify(self: Any, shard: int, messages_found: Any, *more: Any) -> Plan[Any]:
        messages: Any = yield from build(self, shard, messages_found, *more)
        if messages_found:
            for action in actions:
                action(len(messages_found))
        return messages

    monkeypatch.setattr(Dequeue, "_build_messages", build_and_notify)
    return actions


@pytest.mark.parametrize(
    ("limit", "value", "new", "exclusive_key", "messages_max"),
    [
        ("CALL_MESSAGES", 5, NewMessage(), None, 5),
        ("CALL_MESSAGES", 5, NewMessage(metadata=PAIRS), "k0", 5),
        ("OUT_OF_BAND_BYTES", 100 * KIB, NewMessage(bytes(32 * KIB)), None, 3),
        ("CALL_BYTES", 10 * KIB, NewMessage(bytes(KIB)), None, 9),
        ("CALL_ENTRIES", 50, NewMessage(metadata=PAIRS), None, 2),
        ("CALL_ENTRIES", 200, NewMessage(metadata=PAIRS), "k0", 2),
    ],
)
def test_the_size_of_a_call_is_limited_and_the_next_call_continues(
    tw: Tickwheel,
    monkeypatch: pytest.MonkeyPatch,
    after_each_call: list[Callable[[int], object]],
    limit: str,
    value: int,
    new: NewMessage,
    exclusive_key: str | None,
    messages_max: int,
) -> None:
    queue = tw.create_queue("q", exclusive_key=exclusive_key)
    for n in range(12):
        metadata = None if new.metadata is None else {**new.metadata, "k0": f"v{n}"}
        queue.enqueue(new.payload, id=f"m{n}", metadata=metadata)
    monkeypatch.setattr(limits, limit, value)
    leased: list[int] = []
    after_each_call.append(leased.append)
    assert {message.id for message in queue.dequeue(100)} == {f"m{n}" for n in range(12)}
    assert sum(leased) == 12
    assert 1 <= max(leased) <= messages_max


@pytest.mark.parametrize("consistency", ["heads", "exact"])
def test_leased_messages_are_returned_though_the_next_call_is_refused(
    tw: Tickwheel,
    tickwheel_server: PrivateServer,
    monkeypatch: pytest.MonkeyPatch,
    after_each_call: list[Callable[[int], object]],
    consistency: str,
) -> None:
    queue = tw.create_queue("q")
    queue.enqueue_many(NewMessage(bytes(KIB)) for _ in range(40))
    monkeypatch.setattr(limits, "CALL_BYTES", 10 * KIB)
    with Tickwheel(tickwheel_server.url, namespace=tw._context.namespace, clock="_clock_test") as other:
        after_each_call.append(lambda _: other.queue("q").block(enqueue=False))
        messages = queue.dequeue(40, consistency=consistency)
        assert 0 < len(messages) == queue.counts()["running"] < 40
        with pytest.raises(QueueBlocked):
            queue.dequeue(40)


class RetainedConfigs(dict[str, Any]):
    """Configurations that may be replaced, but not removed."""

    def pop(self, *_: Any) -> Any:
        raise AssertionError("another thread may need it")


def test_reading_a_configuration_keeps_it_for_other_callers(tw: Tickwheel) -> None:
    queue: Queue = tw.create_queue("q", lease=timedelta(minutes=1))
    tw._context.configs = RetainedConfigs(tw._context.configs)
    assert queue.config().lease_ms == 60_000


def test_a_retry_returns_the_messages_of_all_calls_of_the_first_attempt(tw: Tickwheel) -> None:
    queue = tw.create_queue("q")
    # The index entries of their pairs limit a call to 125 messages.
    queue.enqueue_many(NewMessage(metadata={"a": "1", "b": "1", "c": "1"}) for _ in range(200))
    first = queue.dequeue(200, request_id="caller:1")
    assert len(first) == 200
    again = queue.dequeue(200, request_id="caller:1")
    assert {message.id for message in again} == {message.id for message in first}


def test_a_retry_leases_no_message_that_the_first_attempt_did_not_lease(tw: Tickwheel) -> None:
    queue = tw.create_queue("q")
    queue.enqueue_many(NewMessage() for _ in range(600))
    first = queue.dequeue(500, request_id="caller:1")
    queue.complete_many(first[:10])
    for _ in range(2):
        again = queue.dequeue(500, request_id="caller:1")
        assert {message.id for message in again} == {message.id for message in first[10:]}


@pytest.mark.tickwheel(shards=2)
def test_a_retry_over_several_shards_keeps_the_limit(tw: Tickwheel) -> None:
    queue = tw.create_queue("q")
    ids: dict[int, list[str]] = {0: [], 1: []}
    for n in range(3_000):
        ids[shard_of("q", f"m{n}".encode(), 2)].append(f"m{n}")
    for shard, hours, count in ((0, 1, 250), (1, 2, 600)):
        deadline = timedelta(hours=hours)
        queue.enqueue_many(NewMessage(id=id_, deadline=deadline) for id_ in ids[shard][:count])
    first = queue.dequeue(500, request_id="caller:1")
    assert len(first) == 500
    again = queue.dequeue(500, request_id="caller:1")
    assert {message.id for message in again} == {message.id for message in first}
