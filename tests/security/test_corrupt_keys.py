"""Values that the Redis user of the service can write to its own namespace: everything that is readable continues."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.event_process_thread import run_event_process
from tests.support.outbox import read_outbox
from tests.support.wait_until import eventually
from tickwheel import DataLoss, NewMessage, Queue, Tickwheel
from tickwheel.driver import shard_driver
from tickwheel.driver.unknown_queues import UNKNOWN_MS
from tickwheel.event_process import EventProcess
from tickwheel.storage.fence import epoch_of, is_fence, pack_fence
from tickwheel.storage.keys import queue_key, queues_key, shard_key
from tickwheel.storage.timer import ENTRY_BYTES, ENTRY_TIMERS, Kind, Timer, pack
from tickwheel.storage.wheel_levels import HIGHEST, start
from tickwheel.testing import PrivateServer, sandbox

pytestmark = pytest.mark.security

MS, SECOND = timedelta(milliseconds=1), timedelta(seconds=1)
SHARDS = 2
# A queue number that no queue has.
MISSING = 65_000
# Fields of the key `clock`, with values that no program of Tickwheel writes.
GARBAGE: list[tuple[str, bytes]] = [
    *(("fence", value) for value in (b"x" * 16, b"", b"\xff", b"\xff" * 16, b"\0" * 8 + b"\xff" * 8, b"1" * 40)),
    *(("election", value) for value in (b"", b"\xff", b"\x1b[31m", b"no kind")),
    *(
        (field, value)
        for field in ("high", "accepted", "created", "seq", "outbox", "dropped", "held", "owner")
        for value in (b"", b"\xff", b"nan", b"inf", b"-inf", b"1e400", b"x" * 100, b"9" * 30, b"253402300799999", b"-1")
        # This could be the size of the outbox: the limit applies until the outbox is empty.
        if (field, value) != ("outbox", b"253402300799999")
    ),
]


@pytest.fixture
def jobs(tickwheel_server: PrivateServer, namespace: str) -> Iterator[Queue]:
    with Tickwheel(tickwheel_server.url, namespace=namespace, shards=SHARDS, history="relay") as tickwheel:
        yield tickwheel.create_queue("jobs")


@contextmanager
def event_process(server: PrivateServer, namespace: str, lock: Path) -> Iterator[EventProcess]:
    with run_event_process(server.url, namespace, lock, relays=False) as process:
        eventually(lambda: all(stats.epoch for stats in process.health().values()), "all shards are driven")
        yield process


def promote(jobs: Queue, count: int = 20) -> None:
    """Enqueue delayed messages on all shards, and wait until the event process has promoted all of them."""
    jobs.enqueue_many(NewMessage(delay=MS) for _ in range(count))
    left = count
    while left > 0:
        messages = jobs.dequeue(limit=count, wait=10 * SECOND)
        assert messages, f"{left} messages are not promoted"
        jobs.complete_many(messages)
        left -= len(messages)


def timers_of_other_slots(queue: Queue, count: int) -> bytes:
    """Return timers of messages that do not exist, each in a slot of its own."""
    times = [start(HIGHEST, n) for n in range(2_000, 2_000 + count)]
    return b"".join(pack(Timer(time_ms, queue.config().number, 1, Kind.PROMOTE, b"m")) for time_ms in times)


@pytest.mark.parametrize("is_long", [False, True], ids=["many timers", "many bytes"])
def test_an_entry_of_the_inbox_that_is_larger_than_those_of_scripts_stops_no_timer(
    tickwheel_server: PrivateServer, namespace: str, server: Any, jobs: Queue, tmp_path: Path, is_long: bool
) -> None:
    inbox = shard_key(namespace, 0, "inbox")
    large = bytes(ENTRY_BYTES + 1) if is_long else timers_of_other_slots(jobs, 60_000)
    with event_process(tickwheel_server, namespace, tmp_path / "lock") as process:
        server.xadd(inbox, {"t": large})
        promote(jobs)
        eventually(lambda: not server.xlen(inbox), "the inbox is empty")
        assert process.health()[0].corrupt_entries == 1


def test_an_entry_of_the_inbox_with_the_maximum_of_timers_is_filed(
    tickwheel_server: PrivateServer, namespace: str, server: Any, jobs: Queue, tmp_path: Path
) -> None:
    inbox = shard_key(namespace, 0, "inbox")
    with event_process(tickwheel_server, namespace, tmp_path / "lock") as process:
        server.xadd(inbox, {"t": timers_of_other_slots(jobs, ENTRY_TIMERS)})
        eventually(lambda: not server.xlen(inbox), "the inbox is empty")
        assert process.health()[0].corrupt_entries == 0
    assert server.zcard(shard_key(namespace, 0, "slots")) == ENTRY_TIMERS


def add_timers_of_missing_queue(server: Any, namespace: str, time_ms: int, count: int) -> None:
    inbox, timer = shard_key(namespace, 0, "inbox"), pack(Timer(time_ms, MISSING, 1, Kind.PROMOTE, b"m"))
    for _ in range(count // 500):
        server.xadd(inbox, {"t": timer * 500})


@pytest.mark.parametrize("time_ms", [1, 2_000_000_000_000])
def test_timers_of_a_missing_queue_do_not_count_towards_the_limits_of_memory(
    tickwheel_server: PrivateServer, server: Any, monkeypatch: pytest.MonkeyPatch, time_ms: int
) -> None:
    monkeypatch.setattr(shard_driver, "MEMORY_TIMERS_FROM_SLOTS", 1_000)
    monkeypatch.setattr(shard_driver, "MEMORY_TIMERS", 2_000)
    start_at = datetime.fromtimestamp(2_000_000_000 - 60, UTC)
    with sandbox(tickwheel_server, now=start_at) as (tickwheel, clock):
        queue = tickwheel.create_queue("jobs")
        add_timers_of_missing_queue(server, tickwheel._context.namespace, time_ms, 5_000)
        queue.enqueue(id="before", delay=timedelta(hours=1))
        clock.advance(timedelta(minutes=2))
        add_timers_of_missing_queue(server, tickwheel._context.namespace, time_ms, 5_000)
        queue.enqueue(id="after", delay=timedelta(minutes=58))
        clock.advance(timedelta(hours=1))
        assert sorted(message.id for message in queue.dequeue(limit=2)) == ["after", "before"]


def test_timers_of_a_missing_queue_are_all_loaded_when_the_queue_exists_again(
    tickwheel_server: PrivateServer, server: Any
) -> None:
    with sandbox(tickwheel_server) as (tickwheel, clock):
        queue, other = tickwheel.create_queue("lost"), tickwheel.create_queue("other")
        for delay in (SECOND, 20 * SECOND, timedelta(hours=1)):
            queue.enqueue_many(NewMessage(delay=delay) for _ in range(300))
        namespace = tickwheel._context.namespace
        key = queues_key(namespace)
        stored = server.hget(key, "lost")
        server.hdel(key, "lost")
        clock.advance(timedelta(minutes=10))
        other.enqueue(delay=timedelta(minutes=1))
        clock.advance(timedelta(minutes=1))
        assert len(other.dequeue()) == 1
        assert not server.exists(queue_key(namespace, 0, "lost", "ready"))
        server.hset(key, "lost", stored)
        clock.advance(timedelta(milliseconds=UNKNOWN_MS))
        assert queue.counts()["pending"] == 600
        clock.advance(timedelta(hours=1))
        assert queue.counts()["pending"] == 900
        assert server.xlen(shard_key(namespace, 0, "inbox")) == server.zcard(shard_key(namespace, 0, "slots")) == 0


@pytest.mark.parametrize(("field", "value"), GARBAGE)
def test_timers_fire_although_a_field_of_the_clock_is_garbage(
    tickwheel_server: PrivateServer, namespace: str, server: Any, jobs: Queue, tmp_path: Path, field: str, value: bytes
) -> None:
    clock = shard_key(namespace, 0, "clock")
    with event_process(tickwheel_server, namespace, tmp_path / "lock") as process:
        server.hset(clock, field, value)
        promote(jobs)
        assert all(stats.epoch for stats in process.health().values())
    server.hset(clock, field, value)
    with event_process(tickwheel_server, namespace, tmp_path / "lock"):
        promote(jobs)


@pytest.mark.parametrize("value", [b"", b"nan", b"-1", b"1.5", b"9" * 30])
def test_incarnations_rise_although_the_sequence_was_garbage(
    namespace: str, server: Any, jobs: Queue, value: bytes
) -> None:
    for sequence in (b"1000", value):
        for shard in range(SHARDS):
            server.hset(shard_key(namespace, shard, "clock"), "seq", sequence)
        jobs.enqueue_many(NewMessage() for _ in range(20))
    incarnations = sorted(transition.incarnation for transition in read_outbox(server, namespace, SHARDS))
    assert incarnations[19] <= 1_020 < incarnations[20]


@pytest.mark.parametrize(
    ("field", "value"), [("fence", b"x" * 16), ("election", b"\x1b"), ("high", b"nan"), ("accepted", b"9" * 30)]
)
def test_a_claim_replaces_a_corrupt_value_logs_and_counts_it(
    tickwheel_server: PrivateServer, namespace: str, server: Any, jobs: Queue, tmp_path: Path,
    caplog: pytest.LogCaptureFixture, field: str, value: bytes,
) -> None:  # fmt: skip
    clock = shard_key(namespace, 0, "clock")
    server.hset(clock, field, value)
    with event_process(tickwheel_server, namespace, tmp_path / "lock") as process:
        promote(jobs)
        assert [process.health()[shard].corrupt_values for shard in range(SHARDS)] == [1, 0]
    assert server.hget(clock, field) != value
    lines = [record for record in caplog.records if f"the field {field} of the key clock was corrupt" in record.message]
    assert [line.levelno for line in lines] == [logging.WARNING]
    assert lines[0].message.isprintable()


def test_a_running_event_process_keeps_its_epoch_after_its_fence_was_overwritten(
    tickwheel_server: PrivateServer, namespace: str, server: Any, jobs: Queue, tmp_path: Path
) -> None:
    clock = shard_key(namespace, 0, "clock")
    server.hset(clock, "fence", pack_fence(7, 0))
    server.hset(clock, "election", "lockfile")
    with event_process(tickwheel_server, namespace, tmp_path / "lock") as process:
        assert process.health()[0].epoch == 8
        server.hset(clock, "fence", b"x" * 16)
        promote(jobs)
        assert epoch_of(server.hget(clock, "fence")) == process.health()[0].epoch == 8


@pytest.mark.parametrize(
    ("fence", "is_valid"),
    [
        (pack_fence(1, 0), True),
        (pack_fence(2**53 - 1, 2**53 - 1), True),
        (pack_fence(2**53, 0), False),
        (pack_fence(0, 2**53), False),
        (pack_fence(1, 0)[:15], False),
        (b"", False),
    ],
)
def test_a_fence_that_an_event_process_can_have_written_is_not_corrupt(fence: bytes, is_valid: bool) -> None:
    assert is_fence(fence) == is_valid


@pytest.mark.parametrize("key", ["inbox", "clock", "messages", "events", "q:jobs:config"])
def test_a_key_of_another_type_is_a_loss_of_data_that_names_the_key_and_the_remedy(
    tickwheel_server: PrivateServer, namespace: str, server: Any, jobs: Queue, key: str
) -> None:
    name = shard_key(namespace, 0, key)
    server.delete(name)
    server.set(name, "x")
    with pytest.raises(DataLoss) as error:
        jobs.enqueue_many(NewMessage(delay=MS) for _ in range(20))
    assert f"the key {name} has the type string, not " in str(error.value)
    assert f"UNLINK {name}" in str(error.value)
    server.delete(name)


@pytest.mark.parametrize("key", ["q:jobs:counts", "q:jobs:lateness", "q:jobs:forecast"])
@pytest.mark.parametrize("exclusive_key", [None, "of"], ids=["plain", "exclusive"])
def test_a_counter_of_another_type_harms_no_message(
    tickwheel_server: PrivateServer, server: Any, exclusive_key: str | None, key: str
) -> None:
    """An error of a counter would end the call in the middle of its writes, and callers would repeat it."""
    with sandbox(tickwheel_server) as (tickwheel, clock):
        queue = tickwheel.create_queue("jobs", exclusive_key=exclusive_key, forecast=True)
        name = shard_key(tickwheel._context.namespace, 0, key)
        queue.enqueue(b"now", id="now", metadata={"of": "a"}, deadline=MS)
        server.delete(name)
        server.set(name, "x")
        queue.enqueue(b"late", id="late", metadata={"of": "b"}, delay=MS, deadline=MS)
        clock.advance(2 * MS)
        for attempt in (1, 2):
            messages = queue.dequeue(limit=3)
            assert {(message.id, message.payload, message.attempt) for message in messages} == {
                ("now", b"now", attempt),
                ("late", b"late", attempt),
            }
            assert queue.dequeue() == []
            for message in messages:
                message.fail(retry_in=0 * MS)
        if key.endswith("counts"):
            with pytest.raises(DataLoss, match="q:jobs:counts has the type string"):
                queue.counts()
        server.delete(name)


@pytest.mark.parametrize("key", ["inbox", "clock", "slots"])
def test_a_key_of_another_type_stops_the_timers_of_its_shard_only_until_it_is_deleted(
    tickwheel_server: PrivateServer, namespace: str, server: Any, jobs: Queue, tmp_path: Path,
    caplog: pytest.LogCaptureFixture, key: str,
) -> None:  # fmt: skip
    name = shard_key(namespace, 0, key)
    ids = [f"m{n}" for n in range(20)]
    jobs.enqueue_many(NewMessage(id=id, delay=MS) for id in ids)
    on_other_shard = {id for id in ids if jobs.get(id) and server.hlen(shard_key(namespace, 1, "messages"))}
    assert on_other_shard
    server.delete(name)
    server.set(name, "x")
    with run_event_process(tickwheel_server.url, namespace, tmp_path / "lock", relays=False) as process:
        eventually(
            lambda: any(f"the key {name} has the type string" in line for line in caplog.messages),
            "the log names the key",
        )
        eventually(lambda: jobs.dequeue(limit=20), "the messages of the other shard are promoted", 20)
        assert process.health()[1].epoch
        server.delete(name)
        eventually(lambda: process.health()[0].epoch, "the shard is driven again", 20)
        promote(jobs)


@pytest.mark.parametrize(
    "row",
    [
        *((b"evil\x1b]0;pwn\x07\n", None), (b"\xff", None), (b"evil", b"\0" * 40), (b"evil", b"")),
        *((b"evil", bytes(10) + b"[" * 100_000), (b"evil", bytes(10) + b'{"indexed":' * 100_000)),
    ],
    ids=range(6),
)
def test_an_unreadable_row_of_the_queues_hides_no_queue_and_stops_no_timer(
    tickwheel_server: PrivateServer, namespace: str, server: Any, jobs: Queue, tmp_path: Path,
    caplog: pytest.LogCaptureFixture, row: tuple[bytes, bytes | None],
) -> None:  # fmt: skip
    key = queues_key(namespace)
    name, stored = row
    server.hset(key, name, server.hget(key, "jobs") if stored is None else stored)
    with Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel:
        assert [queue.name for queue in tickwheel.queues()] == ["jobs"]
        line = next(line for line in caplog.messages if "unreadable rows of queues are skipped" in line)
        assert f"{name!r}" in line
        if stored is not None:
            with pytest.raises(DataLoss, match="the configuration of queue 'evil' is damaged"):
                tickwheel.queue("evil").enqueue()
    with event_process(tickwheel_server, namespace, tmp_path / "lock"):
        promote(jobs)
