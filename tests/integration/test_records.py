"""Python and Lua agree byte for byte on the stored data: records, timers and events."""

import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tickwheel import LeaseLost, Message, NewMessage, Queue, Tickwheel, limits
from tickwheel.storage import record
from tickwheel.storage.keys import shard_key
from tickwheel.storage.record import BODY, BORN_PENDING, ERROR, EXPLICIT, HELD, OVERRIDES, OWNED, PAIRS, Record, State
from tickwheel.storage.timer import Kind, Timer, generation, pack
from tickwheel.storage.transition import OutboxTransition
from tickwheel.testing import VirtualClock

pytestmark = pytest.mark.integration

MS = timedelta(milliseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
METADATA = {"of": "acme", "gpu": "a100", "é": "", "k": "v" * 256}
SECTIONS = ["deadline", "overrides", "pairs", "body"]
SUBSETS = [set(subset) for n in range(5) for subset in itertools.combinations(SECTIONS, n)]
STATES = ["invisible", "pending", "running", "failed", "completed", "cancelled", "held", "errored", "redriven"]


def stored(tw: Tickwheel, server: Any, key: str) -> Iterator[Any]:
    """Return the data under a key that each shard has once."""
    for shard in range(tw._context.shards):
        name = shard_key(tw._context.namespace, shard, key)
        if key == "inbox":
            yield from (fields[b"t"] for _, fields in server.xrange(name))
        else:
            yield from server.hgetall(name).items()


def arguments(sections: set[str]) -> dict[str, Any]:
    return {
        "payload": b"p" * (limits.INLINE_BYTES + 1 if "body" in sections else 20),
        "deadline": EPOCH - timedelta(days=1) if "deadline" in sections else None,
        "lease": timedelta(seconds=7) if "overrides" in sections else None,
        "max_attempts": 1 if "overrides" in sections else None,
        "metadata": METADATA if "pairs" in sections else {"of": "acme"},
    }


def first_incarnation(now_ms: int) -> int:
    """Return the incarnation of the first message of a shard, if the message is enqueued at this time."""
    return now_ms * 32 + 1


def expected(now_ms: int, sections: set[str], metadata: dict[str, str], payload: bytes) -> Record:
    """Return the record of a message that has just become Pending; only the server knows its digest and nonce."""
    flags = PAIRS | BORN_PENDING
    flags |= EXPLICIT if "deadline" in sections else 0
    flags |= OVERRIDES if "overrides" in sections else 0
    flags |= BODY if "body" in sections else 0
    return Record(
        state=State.PENDING,
        flags=flags,
        version=1,
        attempts=0,
        incarnation=first_incarnation(now_ms),
        due_ms=now_ms,
        until_ms=now_ms,
        digest=b"",
        nonce=0,
        deadline_ms=-86_400_000 if "deadline" in sections else now_ms,
        token=b"",
        worker="",
        lease_ms=7_000 if "overrides" in sections else 0,
        max_attempts=1 if "overrides" in sections else 0,
        error="",
        metadata=metadata,
        payload=payload,
    )


def lead_to(state: str, queue: Queue, sections: set[str], wanted: Record, clock: VirtualClock) -> None:
    """Enqueue a message, bring it to a state, and apply the same changes to the expected record."""
    queue.enqueue(id="m", delay=timedelta(hours=1) if state == "invisible" else None, **arguments(sections))
    if state == "invisible":
        wanted.state, wanted.flags = State.INVISIBLE, wanted.flags - BORN_PENDING
        wanted.due_ms = wanted.until_ms = wanted.due_ms + 3_600_000
        wanted.deadline_ms = wanted.deadline_ms if "deadline" in sections else wanted.due_ms
    if state in ("running", "failed", "completed", "held", "errored", "redriven"):
        [message] = queue.dequeue(worker="w é")
        wanted.state, wanted.flags, wanted.token, wanted.worker = (
            State.RUNNING,
            wanted.flags | OWNED,
            message.token,
            "w é",
        )
        wanted.version, wanted.attempts = 2, 1
        wanted.until_ms += 7_000 if "overrides" in sections else 30_000
        if state == "completed":
            message.complete()
            keep_header(wanted, State.COMPLETED, OWNED)
        elif state == "held":
            queue.cancel("m", "acme")
            until = wanted.until_ms
            keep_header(wanted, State.CANCELLED, OWNED)
            wanted.flags, wanted.worker, wanted.until_ms = wanted.flags | HELD, "w é", until
        elif state in ("failed", "errored", "redriven"):
            fail(message, wanted, state, sections)
            if state == "redriven" and wanted.state is State.ERRORED:
                queue.redrive("m", "acme")
                wanted.state, wanted.version, wanted.attempts, wanted.until_ms = State.PENDING, 4, 0, wanted.due_ms
    if state == "cancelled":
        queue.cancel("m", "acme")
        keep_header(wanted, State.CANCELLED, 0)


def keep_header(wanted: Record, state: State, owned: int) -> None:
    """A finished message keeps its header and deadline, and the token if the token is still needed."""
    wanted.state, wanted.version = state, wanted.version + 1
    wanted.flags = wanted.flags & (EXPLICIT | BORN_PENDING) | owned
    wanted.worker, wanted.lease_ms, wanted.max_attempts, wanted.metadata, wanted.payload = "", 0, 0, {}, b""
    wanted.until_ms = wanted.due_ms + 600_000


def fail(message: Message, wanted: Record, state: str, sections: set[str]) -> None:
    message.fail("boom é", retry_in=timedelta(seconds=3))
    # The message's own limit is one attempt.
    wanted.state = State.ERRORED if "overrides" in sections else State.INVISIBLE
    wanted.flags, wanted.token, wanted.worker, wanted.error = wanted.flags - OWNED | ERROR, b"", "", "boom é"
    wanted.version = 3
    wanted.until_ms = wanted.due_ms + (7 * 86_400_000 if wanted.state is State.ERRORED else 3_000)


@pytest.mark.parametrize("state", STATES)
def test_a_record_equals_the_encoding_by_python(
    tw: Tickwheel, clock: VirtualClock, server: Any, contents: Callable[[str], dict[str, Any]], state: str
) -> None:
    queue = tw.create_queue("q", exclusive_key="of", indexed=["of", "k"])
    now_ms = (clock.now - EPOCH) // MS
    for incarnation, sections in enumerate(SUBSETS, start=first_incarnation(now_ms)):
        enqueued = arguments(sections)
        # Indexed pairs come first, the other pairs keep their order.
        metadata = {key: enqueued["metadata"][key] for key in ("of", "k", "gpu", "é") if key in enqueued["metadata"]}
        wanted = expected(now_ms, sections, metadata, enqueued["payload"])
        lead_to(state, queue, sections, wanted, clock)
        [(field, data)] = stored(tw, server, "messages")
        assert field == b"\0\1\0\4acmem"
        decoded = record.decode(data)
        # Unknown in advance: the shard's number of enqueues, and the values that the client draws and hashes.
        wanted.incarnation, wanted.digest, wanted.nonce = incarnation, decoded.digest, decoded.nonce
        assert len(wanted.digest) == 8
        header, body = record.encode(wanted, queue.config().indexed_keys)
        assert data == header, f"{state} with {sections or 'no sections'}: {decoded} is not {wanted}"
        assert list(stored(tw, server, "bodies")) == ([(field + decoded.digest, body)] if wanted.flags & BODY else [])
        remove(queue, clock)
        clock.set(EPOCH + now_ms * MS)


def remove(queue: Queue, clock: VirtualClock) -> None:
    """Bring the message to the end of its retention."""
    if queue.get("m", "acme").state not in ("completed", "errored"):
        queue.cancel("m", "acme", release=True)
    clock.advance(timedelta(days=8))
    assert sum(queue.counts().values()) == 0


def test_a_timer_equals_the_encoding_by_python(tw: Tickwheel, clock: VirtualClock, server: Any) -> None:
    plain, exclusive = tw.create_queue("plain"), tw.create_queue("exclusive", exclusive_key="of")
    now_ms = (clock.now - EPOCH) // MS
    plain.enqueue(id="m", delay=timedelta(hours=1))
    exclusive.enqueue(id="n", metadata={"of": "é"})
    exclusive.dequeue(lease=timedelta(seconds=5))
    exclusive.cancel("n", "é", release=True)
    first = first_incarnation(now_ms)
    timers = [
        Timer(now_ms + 3_600_000, 1, generation(first, 1), Kind.PROMOTE, b"m"),
        Timer(now_ms + 5_000, 2, generation(first, 2), Kind.EXPIRE, "\0\2én".encode()),
        Timer(now_ms + 600_000, 2, generation(first, 3), Kind.RETIRE, "\0\2én".encode()),
    ]
    if tw._context.shards == 1:
        timers[1:] = [timer._replace(generation=timer.generation + (1 << 16)) for timer in timers[1:]]
    assert sorted(stored(tw, server, "inbox")) == sorted(map(pack, timers))


def test_an_event_can_be_read_by_python(
    tw: Tickwheel, clock: VirtualClock, history: Callable[[str], list[OutboxTransition]]
) -> None:
    queue = tw.create_queue("q", exclusive_key="of")
    now_ms = (clock.now - EPOCH) // MS
    queue.enqueue(id="é" * 64, delay=timedelta(seconds=1), deadline=EPOCH - MS, metadata={"of": "", "a": "b"})
    clock.set(clock.now + timedelta(seconds=3))
    clock.run_due()
    [message] = queue.dequeue(worker="w é")
    message.complete()
    enqueued, promoted, dequeued, completed = history("é" * 64)
    of = {"queue_number": 1, "id": "é" * 64, "exclusive_value": "", "incarnation": first_incarnation(now_ms)}
    assert enqueued == OutboxTransition(
        **of,  # type: ignore[arg-type]
        version=1,
        from_state=None,
        to_state=State.INVISIBLE,
        time_ms=now_ms,
        until_ms=now_ms + 1_000,
        attempt=0,
        due_ms=now_ms + 1_000,
        deadline_ms=-1,
        metadata={"of": "", "a": "b"},
    )
    assert promoted == OutboxTransition(
        **of,  # type: ignore[arg-type]
        version=2,
        from_state=State.INVISIBLE,
        to_state=State.PENDING,
        time_ms=now_ms + 3_000,
        until_ms=now_ms + 1_000,
        attempt=0,
        lateness_ms=2_000,
    )
    assert dequeued == OutboxTransition(
        **of,  # type: ignore[arg-type]
        version=3,
        from_state=State.PENDING,
        to_state=State.RUNNING,
        time_ms=now_ms + 3_000,
        until_ms=now_ms + 3_000 + 30_000,
        attempt=1,
        worker="w é",
        lateness_ms=2_000,
    )
    assert completed == OutboxTransition(
        **of,  # type: ignore[arg-type]
        version=4,
        from_state=State.RUNNING,
        to_state=State.COMPLETED,
        time_ms=now_ms + 3_000,
        until_ms=now_ms + 3_000 + 600_000,
        attempt=1,
    )


def test_generations_wrap_around(tw: Tickwheel, clock: VirtualClock, server: Any) -> None:
    queue = tw.create_queue("q")
    for shard in range(tw._context.shards):
        server.hset(shard_key(tw._context.namespace, shard, "clock"), "seq", 2**16 - 2)
    for n in range(8):
        queue.enqueue(id=f"m{n}", delay=timedelta(seconds=1))
    clock.advance(timedelta(seconds=1))
    assert queue.counts()["pending"] == 8


def test_events_contain_whole_incarnations_and_versions(
    tw: Tickwheel, server: Any, history: Callable[[str], list[OutboxTransition]]
) -> None:
    queue = tw.create_queue("q")
    first, of_version = 2**33 + 2**16 - 3, 2**16 - 1
    for shard in range(tw._context.shards):
        server.hset(shard_key(tw._context.namespace, shard, "clock"), "seq", first)
    ids = [f"m{n}" for n in range(40)]
    queue.enqueue_many([NewMessage(id=id) for id in ids])
    # As after 65,534 transitions, of which only the first message's version is set.
    [(field, packed)] = [(field, packed) for field, packed in stored(tw, server, "messages") if field.endswith(b"m0")]
    for shard in range(tw._context.shards):
        if server.hexists(key := shard_key(tw._context.namespace, shard, "messages"), field):
            server.hset(key, field, packed[:2] + of_version.to_bytes(4, "big") + packed[6:])
    assert len(queue.dequeue(limit=40)) == 40
    expected = {field[2:].decode(): record.decode(packed) for field, packed in stored(tw, server, "messages")}
    for id in ids:
        enqueued, dequeued = history(id)
        assert enqueued.incarnation == dequeued.incarnation == expected[id].incarnation > first
        assert dequeued.version == expected[id].version == (of_version + 1 if id == "m0" else 2)
    assert len({id for id in ids if expected[id].incarnation >= first + 3}) >= 20
    # The audit can replay only complete histories.
    for shard in range(tw._context.shards):
        server.xtrim(shard_key(tw._context.namespace, shard, "events"), maxlen=0, approximate=False)


def test_a_record_of_an_unnamed_worker_can_be_read(tw: Tickwheel) -> None:
    queue = tw.queue("q")
    queue.enqueue(id="m")
    [message] = queue.dequeue()
    assert queue.get("m").worker == ""
    queue.cancel("m")
    with pytest.raises(LeaseLost):
        message.complete()
