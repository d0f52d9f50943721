"""The outbox of a namespace with history 'relay': its size in bytes, its limit, and the behaviour at the limit."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.support.outbox import read_outbox
from tests.support.wait_until import eventually
from tickwheel import InvalidArgument, NewMessage, OutboxFull, Tickwheel
from tickwheel.doctor import audit
from tickwheel.storage.fence import pack_fence
from tickwheel.storage.keys import shard_key
from tickwheel.storage.scripts import load
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

LIMIT = 4096
Open = Callable[..., Tickwheel]


@pytest.fixture
def open_one(tickwheel_server: PrivateServer, namespace: str) -> Iterator[Open]:
    """Open clients of one new namespace with a small outbox; at the end the audit checks the counted size."""
    opened: list[Tickwheel] = []

    def with_settings(**settings: Any) -> Tickwheel:
        options: dict[str, Any] = {"history": "relay", "outbox_limit": LIMIT} | settings
        opened.append(Tickwheel(tickwheel_server.url, namespace=namespace, **options))
        return opened[-1]

    yield with_settings
    assert opened[0]._run(audit(opened[0]._context)) == []
    for tickwheel in opened:
        tickwheel.close()


def clock_of(tickwheel: Tickwheel, server: Any, field: str) -> int:
    return int(server.hget(shard_key(tickwheel._context.namespace, 0, "clock"), field) or 0)


def entries(tickwheel: Tickwheel, server: Any) -> list[tuple[bytes, bytes]]:
    entries_found = server.xrange(shard_key(tickwheel._context.namespace, 0, "events"))
    return [(entry_id, fields[b"e"]) for entry_id, fields in entries_found]


def fill(tickwheel: Tickwheel) -> OutboxFull:
    """Enqueue until the outbox is full, and return the error."""
    try:
        for n in range(LIMIT):
            tickwheel.queue("q").enqueue(id=f"m{n}")
    except OutboxFull as refused:
        return refused
    raise AssertionError("the outbox takes more than its limit")


def trim(tickwheel: Tickwheel, server: Any, count: int, *, first: bytes | None = None) -> int:
    """Trim the first `count` entries, as the relay does."""
    waiting = entries(tickwheel, server)
    keys = [shard_key(tickwheel._context.namespace, 0, name) for name in ("clock", "events")]
    server.hset(keys[0], "fence", pack_fence(1, 1))
    size = sum(len(entry) for _, entry in waiting[:count])
    script = server.register_script(load("trim_outbox").source)
    cut, left, size, *_ = script(keys, [pack_fence(1, 1), first or waiting[0][0], waiting[count][0], size])
    assert (left, size) == (len(entries(tickwheel, server)), clock_of(tickwheel, server, "outbox"))
    return int(cut)


def test_every_byte_of_the_outbox_is_counted(open_one: Open, server: Any) -> None:
    tickwheel = open_one()
    tickwheel.queue("q").enqueue_many(NewMessage(id=f"m{n}", metadata={"n": str(n)}) for n in range(10))
    tickwheel.queue("q").dequeue()[0].complete()
    size = sum(len(entry) for _, entry in entries(tickwheel, server))
    assert clock_of(tickwheel, server, "outbox") == size > 0


def test_the_age_of_the_outbox_is_true_after_the_servers_clock_was_ahead(open_one: Open, server: Any) -> None:
    tickwheel = open_one()
    keys = [shard_key(tickwheel._context.namespace, 0, name) for name in ("clock", "events")]
    server.hset(keys[0], "fence", pack_fence(1, 1))
    seconds, _ = server.time()
    added = server.xadd(keys[1], {"e": b"x"}, id=f"{(seconds + 600) * 1000}-0")
    server.xdel(keys[1], added)
    tickwheel.queue("q").enqueue()
    [(entry_id, _)] = entries(tickwheel, server)
    assert entry_id > added

    def age_ms() -> int:
        *_, age_ms, oldest_id = server.register_script(load("trim_outbox").source)(keys, [pack_fence(1, 1), "", "", 0])
        assert oldest_id == entry_id
        return int(age_ms)

    eventually(lambda: age_ms() > 20, "the entry gets older")
    assert age_ms() < 60_000


def test_a_namespace_without_a_relay_counts_no_bytes(open_one: Open, server: Any) -> None:
    tickwheel = open_one(history="capped", outbox_limit=None)
    tickwheel.queue("q").enqueue()
    assert clock_of(tickwheel, server, "outbox") == 0


def test_new_messages_are_refused_at_the_limit_and_the_error_names_size_and_limit(open_one: Open, server: Any) -> None:
    tickwheel = open_one()
    refused = fill(tickwheel)
    assert refused.size == clock_of(tickwheel, server, "outbox") >= refused.limit == LIMIT
    assert f"{refused.size:,} bytes" in str(refused)
    assert f"{LIMIT:,}" in str(refused)


def test_a_batch_with_one_new_message_changes_nothing_at_the_limit(open_one: Open, contents: Any) -> None:
    tickwheel = open_one()
    fill(tickwheel)
    before = contents(tickwheel._context.namespace)
    with pytest.raises(OutboxFull):
        tickwheel.queue("q").enqueue_many([NewMessage(id="m0"), NewMessage(b"x" * 2_000, id="new")])
    assert contents(tickwheel._context.namespace) == before


def test_operations_that_add_events_are_refused_at_the_limit_and_change_nothing(
    open_one: Open, server: Any, contents: Any
) -> None:
    tickwheel = open_one()
    queue = tickwheel.create_queue("q", max_attempts=1)
    queue.enqueue(id="later", delay=timedelta(hours=1))
    queue.enqueue(id="errored")
    queue.dequeue()[0].fail()
    fill(tickwheel)
    before, size = contents(tickwheel._context.namespace), clock_of(tickwheel, server, "outbox")
    with pytest.raises(OutboxFull):
        queue.reschedule("later", delay=timedelta(hours=2))
    with pytest.raises(OutboxFull):
        queue.redrive("errored")
    assert contents(tickwheel._context.namespace) == before
    assert clock_of(tickwheel, server, "outbox") == size
    trim(tickwheel, server, 5)
    assert queue.reschedule("later", delay=timedelta(hours=2)).changed
    assert queue.redrive("errored").changed


def test_with_the_policy_drop_nothing_is_refused_at_the_limit(open_one: Open) -> None:
    tickwheel = open_one(outbox_full="drop")
    queue = tickwheel.queue("q")
    for n in range(200):
        queue.enqueue(id=f"m{n}", delay=timedelta(hours=1))
    assert queue.reschedule("m0", delay=timedelta(hours=2)).changed


def test_existing_messages_are_confirmed_at_the_limit(open_one: Open) -> None:
    tickwheel = open_one()
    fill(tickwheel)
    assert not tickwheel.queue("q").enqueue(id="m0").created


def test_operations_that_free_memory_work_at_the_limit(open_one: Open) -> None:
    tickwheel = open_one()
    fill(tickwheel)
    queue = tickwheel.queue("q")
    done, failed, other = queue.dequeue(3)
    done.complete()
    assert failed.fail(retry_in=timedelta(0)) == "pending"
    assert other.extend(timedelta(minutes=1)) == other.lease_until
    queue.cancel(other.id)
    assert [queue.get(m.id).state for m in (done, failed, other)] == ["completed", "pending", "cancelled"]


def test_messages_are_accepted_again_once_the_outbox_is_trimmed(open_one: Open, server: Any) -> None:
    tickwheel = open_one()
    fill(tickwheel)
    assert trim(tickwheel, server, 5) == 5
    assert tickwheel.queue("q").enqueue(id="new").created


def test_a_repeated_trim_counts_once(open_one: Open, server: Any) -> None:
    tickwheel = open_one()
    fill(tickwheel)
    first = entries(tickwheel, server)[0][0]
    trim(tickwheel, server, 5)
    size = clock_of(tickwheel, server, "outbox")
    assert trim(tickwheel, server, 5, first=first) == -1
    assert clock_of(tickwheel, server, "outbox") == size == sum(len(e) for _, e in entries(tickwheel, server))


def test_with_the_policy_drop_no_message_is_refused_and_dropped_events_are_counted(open_one: Open, server: Any) -> None:
    tickwheel = open_one(outbox_full="drop")
    tickwheel.queue("q").enqueue_many(NewMessage(id=f"m{n}") for n in range(1_000))
    tickwheel.queue("q").enqueue_many(NewMessage(id=f"n{n}") for n in range(7))
    transitions = read_outbox(server, tickwheel._context.namespace)
    assert clock_of(tickwheel, server, "dropped") == 1_007 - len(transitions) > 0
    assert clock_of(tickwheel, server, "outbox") <= LIMIT


@pytest.mark.parametrize(
    ("settings", "text"),
    [({"outbox_limit": 2 * LIMIT}, "outbox of 4 KiB"), ({"outbox_full": "drop"}, "policy 'block'")],
)
def test_limit_and_policy_are_fixed_when_the_namespace_is_created(
    open_one: Open, settings: dict[str, Any], text: str
) -> None:
    open_one()
    with pytest.raises(InvalidArgument, match=text):
        open_one(**settings)


def test_the_limit_is_rounded_down_to_whole_kib(open_one: Open) -> None:
    open_one(outbox_limit=LIMIT + 1023)
    open_one(outbox_limit=LIMIT)
    with pytest.raises(InvalidArgument, match="outbox of 4 KiB"):
        open_one(outbox_limit=LIMIT - 1)
