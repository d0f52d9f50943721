"""Damaged records and index entries: they concern only their own messages, and all other messages continue."""

import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.property.mutants import Mutant, load_mutant
from tests.support.event_process_thread import run_event_process
from tests.support.wait_until import eventually
from tickwheel import IdConflict, LeaseLost, NewMessage, Queue, Tickwheel
from tickwheel.driver import firing
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.storage.keys import queue_key, shard_key
from tickwheel.testing import PrivateServer, VirtualClock

pytestmark = pytest.mark.integration

IDS = [f"m{n}" for n in range(5)]
DAMAGED = IDS[1]
RETRY = timedelta(milliseconds=firing.REJECTED_MS)
PAIRS = 16


def cut(record: bytes) -> bytes:
    return record[:1]


def claim_pairs(record: bytes) -> bytes:
    """Return the record with the flag of metadata pairs, and without the pairs."""
    return record[:1] + bytes([record[1] | PAIRS]) + record[2:20] + b"\xff" * 40


def overwrite(_: bytes) -> bytes:
    return b"\x09" * 99


Damage = Callable[[bytes], bytes]


@pytest.fixture(params=[cut, claim_pairs])
def damage(request: pytest.FixtureRequest) -> Damage:
    damage: Damage = request.param
    return damage


@pytest.fixture(params=["plain", "exclusive"])
def queue(request: pytest.FixtureRequest, tw: Tickwheel) -> Queue:
    exclusive_key = "of" if request.param == "exclusive" else None
    return tw.create_queue("q", lease=timedelta(minutes=1), exclusive_key=exclusive_key)


@pytest.fixture
def damaged(tw: Tickwheel, server: Any, damage: Damage) -> Callable[[], Callable[[], None]]:
    """Return a function that damages the record of the message, and returns a function that restores the record."""

    def damage_record() -> Callable[[], None]:
        namespace, shards = tw._context.namespace, tw._context.shards
        for shard in range(shards):
            key = shard_key(namespace, shard, "messages")
            for field, record in server.hgetall(key).items():
                if field.endswith(DAMAGED.encode()):
                    server.hset(key, field, damage(record))
                    return lambda: server.hset(key, field, record)
        raise AssertionError("there is no such message")

    return damage_record


def enqueue(queue: Queue, **options: Any) -> None:
    queue.enqueue_many(NewMessage(id=id, metadata={"of": f"v{id}"}, **options) for id in IDS)


def take(queue: Queue) -> list[str]:
    """Dequeue all messages, and complete them. Return their ids."""
    messages = queue.dequeue(limit=100)
    queue.complete_many(messages)
    return sorted(message.id for message in messages)


OTHERS = [id for id in IDS if id != DAMAGED]


def check_damaged_comes_last(queue: Queue, clock: VirtualClock, damaged: Callable[[], Callable[[], None]]) -> None:
    """Damage one message before the timers fire. It becomes ready only after its record was restored."""
    restore = damaged()
    clock.advance(timedelta(minutes=1))
    assert take(queue) == OTHERS
    restore()
    clock.advance(RETRY)
    assert take(queue) == [DAMAGED]


def test_the_other_messages_become_pending_when_they_are_due(
    queue: Queue, clock: VirtualClock, damaged: Callable[[], Callable[[], None]]
) -> None:
    enqueue(queue, delay=timedelta(minutes=1))
    check_damaged_comes_last(queue, clock, damaged)


def test_the_other_leases_end(queue: Queue, clock: VirtualClock, damaged: Callable[[], Callable[[], None]]) -> None:
    enqueue(queue)
    assert len(queue.dequeue(limit=100)) == len(IDS)
    check_damaged_comes_last(queue, clock, damaged)


def test_the_other_messages_are_gone_after_their_retention(
    queue: Queue, clock: VirtualClock, damaged: Callable[[], Callable[[], None]], damage: Damage
) -> None:
    enqueue(queue)
    assert take(queue) == IDS
    # The script that removes messages does not read the pairs.
    restore = damaged() if damage is cut else (lambda: None)
    clock.advance(timedelta(minutes=10))
    assert queue.counts()["completed"] == (damage is cut)
    restore()
    clock.advance(RETRY)
    assert queue.counts()["completed"] == 0


@pytest.fixture(params=["plain", "exclusive"])
def unaudited(request: pytest.FixtureRequest, tickwheel_server: PrivateServer, namespace: str) -> Iterator[Queue]:
    """A queue on one shard, whose data the test leaves damaged."""
    with Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel:
        exclusive_key = "of" if request.param == "exclusive" else None
        yield tickwheel.create_queue("q", indexed=["of", "kind"], exclusive_key=exclusive_key)


def damage_field(server: Any, namespace: str, damage: Damage | None) -> None:
    """Damage the record of the message, or delete it if ``damage`` is None."""
    key = shard_key(namespace, 0, "messages")
    [(field, record)] = [item for item in server.hgetall(key).items() if item[0].endswith(DAMAGED.encode())]
    if damage is None:
        server.hdel(key, field)
    else:
        server.hset(key, field, damage(record))


@pytest.mark.parametrize("is_due", [True, False])
def test_a_purge_removes_damaged_messages(
    unaudited: Queue, server: Any, namespace: str, damage: Damage, is_due: bool
) -> None:
    enqueue(unaudited, **({} if is_due else {"delay": timedelta(hours=1)}))
    damage_field(server, namespace, damage)
    # Another program has added these records, so no script has counted their messages.
    number = unaudited.config().number.to_bytes(2, "big")
    server.hset(
        shard_key(namespace, 0, "messages"), mapping={number + b"evil": b"\x01", number + b"worse": b"\x09" * 99}
    )
    assert unaudited.purge() == len(IDS) + 2
    assert set(unaudited.counts().values()) == {0}


@pytest.mark.parametrize("damage", [None, cut, claim_pairs, overwrite])
def test_a_queue_with_damaged_messages_can_be_deleted(
    unaudited: Queue, server: Any, namespace: str, damage: Damage | None, tickwheel_server: PrivateServer
) -> None:
    enqueue(unaudited)
    damage_field(server, namespace, damage)
    with Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel:
        tickwheel.delete_queue("q", purge=True)
        assert tickwheel.queues() == []
    assert server.hlen(shard_key(namespace, 0, "messages")) == 0


@pytest.mark.parametrize("damage", [None, cut, claim_pairs])
@pytest.mark.parametrize("where", [{}, {"kind": "a"}, {"kind": "a", "of": "one"}], ids=len)
def test_a_dequeue_skips_and_forgets_a_message_without_a_readable_record(
    unaudited: Queue, server: Any, namespace: str, damage: Damage | None, where: dict[str, str]
) -> None:
    unaudited.enqueue(id=DAMAGED, metadata={"of": "one", "kind": "a"})
    for id in OTHERS:
        unaudited.enqueue(id=id, metadata={"of": "one", "kind": "a"})
    damage_field(server, namespace, damage)
    taken = []
    for _ in IDS:
        for message in unaudited.dequeue(where=where):
            taken.append(message.id)
            message.complete()
    assert taken == OTHERS
    assert unaudited.dequeue(limit=10) == []
    assert not server.exists(queue_key(namespace, 0, "q", "ready"))


@pytest.mark.parametrize("lock", [b"", b"H", b"Hshort", b"x" * 40])
@pytest.mark.parametrize("is_leased", [True, False])
def test_a_damaged_entry_of_a_value_concerns_only_this_value_and_is_replaced(
    tickwheel_server: PrivateServer, namespace: str, server: Any, tmp_path: Path, lock: bytes, is_leased: bool
) -> None:
    with Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel:
        queue = tickwheel.create_queue("q", exclusive_key="of")
        queue.enqueue(id="first", metadata={"of": "a"})
        leased = queue.dequeue() if is_leased else []
        server.hset(queue_key(namespace, 0, "q", "locks"), "a", lock)
        delay = timedelta(milliseconds=1)
        queue.enqueue_many([NewMessage(id=f"{n}", delay=delay, metadata={"of": "ab"[n % 2]}) for n in range(10)])
        with run_event_process(tickwheel_server.url, namespace, tmp_path / "lock", relays=False):
            eventually(lambda: not queue.counts()["invisible"], "all messages are Pending")
        queue.complete_many(leased)
        left = 10 if is_leased else 11
        while left:
            messages = queue.dequeue(limit=10)
            assert len({message.metadata["of"] for message in messages}) == len(messages) > 0
            queue.complete_many(messages)
            left -= len(messages)


def test_one_timer_for_which_a_script_fails_does_not_delay_the_others(
    tickwheel_server: PrivateServer, namespace: str, tmp_path: Path, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(firing, "_log_throttle", LogThrottle())
    begin = "local record = current_record(field, records[n])"
    mutant = Mutant(
        "one message fails", "promote", begin, f"{begin} if sub(field, 3) == '{DAMAGED}' then read('>I8', '') end"
    )
    with Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel:
        queue = tickwheel.create_queue("q")
        # One call enqueues all messages, so they are due at the same time, and all timers are in one call.
        queue.enqueue_many(NewMessage(id=f"m{n}", delay=timedelta(milliseconds=1)) for n in range(100))
        with (
            load_mutant(mutant, tmp_path),
            run_event_process(tickwheel_server.url, namespace, tmp_path / "lock", relays=False) as process,
        ):
            eventually(lambda: queue.counts()["pending"] == 99, "the other messages are Pending")
            eventually(lambda: "names the damaged records" in caplog.text, "the log names the failing timer")
            # The driver counts its timers at the end of a round, after the line of the log.
            eventually(lambda: process.health()[0].in_memory == 1, "the failing timer stays in memory")
    lines = [record for record in caplog.records if "names the damaged records" in record.message]
    assert [line.levelno for line in lines][:1] == [logging.ERROR]


def test_rejected_timers_beyond_the_maximum_stay_in_redis(
    tickwheel_server: PrivateServer, namespace: str, server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firing, "REJECTED_MAX", 3)
    with Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel:
        queue, key = tickwheel.create_queue("q"), shard_key(namespace, 0, "messages")
        queue.enqueue_many(NewMessage(id=id, delay=timedelta(milliseconds=1)) for id in IDS)
        records = server.hgetall(key)
        server.hset(key, mapping={field: cut(record) for field, record in records.items()})
        with run_event_process(tickwheel_server.url, namespace, tmp_path / "lock", relays=False) as process:
            eventually(lambda: process.health()[0].in_memory == 3, "two timers are not in memory")
            inbox = shard_key(namespace, 0, "inbox")
            eventually(lambda: not server.xlen(inbox), "the timers are in slots")
        server.hset(key, mapping=records)
        with run_event_process(tickwheel_server.url, namespace, tmp_path / "lock", relays=False):
            eventually(lambda: queue.counts()["pending"] == len(IDS), "all messages are Pending")


@pytest.mark.parametrize("damage", [cut, claim_pairs, overwrite])
@pytest.mark.parametrize("call", ["complete", "release"])
def test_a_worker_settles_its_other_messages_and_frees_only_their_values(
    tickwheel_server: PrivateServer, namespace: str, server: Any, damage: Damage, call: str
) -> None:
    with Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel:
        queue = tickwheel.create_queue("q", exclusive_key="of")
        for id, value in ((IDS[0], "a"), (DAMAGED, "b"), (IDS[2], "a"), (IDS[3], "a"), (IDS[4], "b")):
            queue.enqueue(id=id, metadata={"of": value})
        leased = queue.dequeue(limit=2)
        assert [message.id for message in leased] == [IDS[0], DAMAGED]
        damage_field(server, namespace, damage)
        settle = queue.complete_many if call == "complete" else queue.release_many
        for _ in range(2):
            with pytest.raises(LeaseLost) as error:
                settle(leased)
        assert DAMAGED in [message.id for message in error.value.lost]
        [message] = queue.dequeue(limit=10)
        assert message.metadata["of"] == "a"


def test_a_purge_frees_the_value_of_a_damaged_message(
    tickwheel_server: PrivateServer, namespace: str, server: Any
) -> None:
    with Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel:
        queue = tickwheel.create_queue("q", exclusive_key="of")
        for id in ("done", DAMAGED, "next"):
            queue.enqueue(id=id, metadata={"of": "a"})
        queue.complete_many(queue.dequeue())
        assert [message.id for message in queue.dequeue()] == [DAMAGED]
        damage_field(server, namespace, overwrite)
        assert queue.dequeue() == []
        assert queue.purge(["completed"]) == 2
        assert [message.id for message in queue.dequeue()] == ["next"]


def test_an_enqueue_with_the_id_of_a_damaged_message_changes_nothing(
    tickwheel_server: PrivateServer, namespace: str, server: Any, contents: Callable[[str], dict[str, Any]]
) -> None:
    with Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel:
        queue = tickwheel.create_queue("q", exclusive_key="of")
        queue.enqueue(id=DAMAGED, metadata={"of": "b"})
        for damage in (cut, overwrite, lambda _: b"", lambda _: b"\x01\x02"):
            damage_field(server, namespace, damage)
            before = contents(namespace)
            with pytest.raises(IdConflict):
                queue.enqueue(b"other", id=DAMAGED, metadata={"of": "b"})
            assert contents(namespace) == before
