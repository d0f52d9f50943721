"""Every transition that the table of states does not allow raises a named error and changes nothing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from tickwheel import InvalidArgument, InvalidTransition, LeaseLost, Message, MessageNotFound, Queue, Tickwheel
from tickwheel.storage.keys import shard_key
from tickwheel.storage.record import decode
from tickwheel.storage.sharding import shard_of
from tickwheel.storage.timer import Kind, Timer, generation, pack
from tickwheel.testing import VirtualClock

pytestmark = pytest.mark.integration

Bring = Callable[..., Message | None]
Dump = Callable[[], dict[str, Any]]
STATES = ["invisible", "pending", "running", "completed", "cancelled", "errored"]


@pytest.fixture(params=["plain", "exclusive"])
def queue(request: pytest.FixtureRequest, tw: Tickwheel) -> Queue:
    if request.param == "plain":
        return tw.create_queue("q")
    return tw.create_queue("q", exclusive_key="of")


@pytest.fixture
def value(queue: Queue) -> str | None:
    """The exclusive value of the test's message."""
    return "acme" if queue.config().exclusive_key else None


@contextmanager
def refused(state: str, allowed: str, dump: Dump) -> Iterator[None]:
    """Check that the body raises an error naming the message, its state and the allowed states, and changes nothing."""
    before = dump()
    with pytest.raises(InvalidTransition, match=f"'m' of queue 'q' is {state}.* {allowed}") as refusal:
        yield
    assert refusal.value.state == state
    assert dump() == before


@pytest.mark.parametrize("state", ["completed", "errored"])
def test_cancel_of_a_finished_message_is_refused(
    queue: Queue, value: str | None, bring: Bring, dump: Dump, state: str
) -> None:
    bring(state, queue, metadata={"of": "acme"})
    with refused(state, "invisible, pending or running", dump):
        queue.cancel("m", value)


@pytest.mark.parametrize("state", ["running", "completed", "cancelled", "errored"])
def test_reschedule_of_a_delivered_or_finished_message_is_refused(
    queue: Queue, value: str | None, bring: Bring, dump: Dump, state: str
) -> None:
    bring(state, queue, metadata={"of": "acme"})
    with refused(state, "invisible or pending", dump):
        queue.reschedule("m", value, delay=timedelta(hours=1))


@pytest.mark.parametrize("state", ["invisible", "pending", "running", "completed", "cancelled"])
def test_redrive_of_a_message_that_is_not_errored_is_refused(
    queue: Queue, value: str | None, bring: Bring, dump: Dump, state: str
) -> None:
    bring(state, queue, metadata={"of": "acme"})
    with refused(state, "errored", dump):
        queue.redrive("m", value)


OPERATIONS: dict[str, Callable[[Message], object]] = {
    "complete": lambda message: message.complete(),
    "fail": lambda message: message.fail("late"),
    "release": lambda message: message.release(),
    "extend": lambda message: message.extend(timedelta(minutes=1)),
}


def lose_lease(queue: Queue, clock: VirtualClock, message: Message, value: str | None, state: str) -> None:
    """Bring a message to a state in which its earlier lease is no longer valid."""
    if state == "invisible":
        message.fail(retry_in=timedelta(hours=1))
    elif state == "pending":
        clock.advance(timedelta(seconds=30))
    elif state == "running":
        clock.advance(timedelta(seconds=30))
        queue.dequeue()
    elif state == "completed":
        clock.advance(timedelta(seconds=30))
        queue.dequeue()[0].complete()
    elif state == "cancelled":
        queue.cancel("m", value, release=True)
    elif state == "errored":
        for _ in range(4):
            clock.advance(timedelta(seconds=30))
            queue.dequeue()
        clock.advance(timedelta(seconds=30))
    elif state == "gone":
        queue.cancel("m", value, release=True)
        clock.advance(timedelta(minutes=10))


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("state", [*STATES, "gone"])
def test_a_token_of_another_lease_is_refused(
    queue: Queue,
    value: str | None,
    clock: VirtualClock,
    bring: Bring,
    dump: Dump,
    operation: str,
    state: str,
) -> None:
    message = bring("running", queue, metadata={"of": "acme"})
    assert message is not None
    lose_lease(queue, clock, message, value, state)
    before = dump()
    with pytest.raises(LeaseLost, match="'m' of queue 'q'") as refusal:
        OPERATIONS[operation](message)
    assert refusal.value.lost == [message]
    assert dump() == before


@pytest.mark.parametrize("operation", ["fail", "extend"])
def test_a_completed_message_can_be_neither_failed_nor_extended_by_its_worker(
    queue: Queue, bring: Bring, dump: Dump, operation: str
) -> None:
    message = bring("completed", queue, metadata={"of": "acme"})
    assert message is not None
    before = dump()
    with pytest.raises(LeaseLost):
        OPERATIONS[operation](message)
    assert dump() == before


@pytest.mark.parametrize("state", ["invisible", "running", "completed", "cancelled", "errored"])
def test_dequeue_of_a_queue_with_nothing_pending_is_empty_and_writes_nothing(
    queue: Queue, bring: Bring, dump: Dump, state: str
) -> None:
    bring(state, queue, metadata={"of": "acme"})
    before = dump()
    assert queue.dequeue(limit=10) == []
    assert queue.dequeue(limit=10, where={"of": "acme"}) == []
    assert dump() == before


@pytest.mark.parametrize("operation", ["cancel", "reschedule", "redrive", "get", "explain"])
def test_a_missing_message_raises_not_found(
    queue: Queue, value: str | None, bring: Bring, dump: Dump, operation: str
) -> None:
    bring("pending", queue, metadata={"of": "acme"})
    before = dump()
    options = {"delay": timedelta(0)} if operation == "reschedule" else {}
    with pytest.raises(MessageNotFound, match="queue 'q' has no message 'other'"):
        getattr(queue, operation)("other", value, **options)
    assert dump() == before


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("kind", list(Kind))
def test_a_timer_that_no_longer_matches_its_message_changes_nothing(
    queue: Queue,
    value: str | None,
    tw: Tickwheel,
    clock: VirtualClock,
    server: Any,
    bring: Bring,
    dump: Dump,
    state: str,
    kind: Kind,
) -> None:
    bring(state, queue, metadata={"of": "acme"})
    clock.run_due()
    raw = b"m" if value is None else b"\0\4acmem"
    shard = shard_of("q", b"m" if value is None else b"acme", tw._context.shards)
    field = queue.config().number.to_bytes(2, "big") + raw
    record = decode(server.hget(shard_key(tw._context.namespace, shard, "messages"), field))

    def all_but_the_wheel() -> dict[str, Any]:
        return {key: stored for key, stored in dump().items() if not key.endswith((":inbox", ":clock"))}

    before = all_but_the_wheel()
    now_ms = int(server.hget(shard_key(tw._context.namespace, shard, "clock"), "now"))
    right = generation(record.incarnation, record.version)
    for gen in (right, right + 1, right - 1, right ^ 1 << 16):
        timer = Timer(now_ms, queue.config().number, gen, kind, raw)
        server.xadd(shard_key(tw._context.namespace, shard, "inbox"), {"t": pack(timer)})
    clock.run_due()
    assert all_but_the_wheel() == before


@pytest.mark.parametrize(
    ("state", "kind", "becomes"),
    [
        ("invisible", Kind.PROMOTE, "pending"),
        ("running", Kind.EXPIRE, "pending"),
        ("completed", Kind.RETIRE, None),
        ("cancelled", Kind.RETIRE, None),
        ("errored", Kind.RETIRE, None),
    ],
)
def test_a_timer_that_fires_a_millisecond_early_changes_nothing(
    queue: Queue,
    value: str | None,
    tw: Tickwheel,
    clock: VirtualClock,
    server: Any,
    bring: Bring,
    state: str,
    kind: Kind,
    becomes: str | None,
) -> None:
    bring(state, queue, metadata={"of": "acme"})
    view = queue.get("m", value)
    assert view.until is not None
    clock.set(view.until - timedelta(milliseconds=1))
    shard = shard_of("q", b"m" if value is None else b"acme", tw._context.shards)
    raw, incarnation = (b"m" if value is None else b"\0\4acmem"), 1
    timer = Timer(0, queue.config().number, generation(incarnation, view.version), kind, raw)
    server.xadd(shard_key(tw._context.namespace, shard, "inbox"), {"t": pack(timer)})
    clock.run_due()
    assert queue.get("m", value) == view
    clock.advance(timedelta(milliseconds=1))
    if becomes is not None:
        assert queue.get("m", value).state == becomes
    else:
        assert sum(queue.counts().values()) == 0


@pytest.mark.parametrize("operation", ["cancel", "reschedule", "redrive", "get", "explain", "leased"])
def test_a_message_of_an_exclusive_queue_is_not_found_without_its_value(
    tw: Tickwheel, bring: Bring, operation: str
) -> None:
    queue = tw.create_queue("exclusive", exclusive_key="of")
    bring("pending", queue, metadata={"of": "acme"})
    needed: dict[str, dict[str, Any]] = {"leased": {"token": bytes(16)}, "reschedule": {"delay": timedelta(0)}}
    with pytest.raises(InvalidArgument, match="exclusive by 'of': pass exclusive_value"):
        getattr(queue, operation)("m", **needed.get(operation, {}))
