"""Entries of the outbox that no script has written: the relay skips, logs and counts them, and publishes all others."""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from services.kafka import Kafka
from tests.support.event_process_thread import run_event_process
from tests.support.kafka_topics import read_json
from tests.support.wait_until import eventually
from tickwheel import NewMessage, Tickwheel, limits
from tickwheel.event_process import EventProcess
from tickwheel.kafka.producer import KafkaProducers
from tickwheel.storage.keys import queues_key, shard_key
from tickwheel.storage.transition import ENTRY_BYTES, ENTRY_TRANSITIONS, UnknownFormat, decode
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

UNKNOWN_QUEUE = 4_711
# An honest entry has several transitions, each with an id.
COUNT = 5
Relaying = Callable[[], AbstractContextManager[EventProcess]]


@pytest.fixture
def tw(tickwheel_server: PrivateServer, namespace: str) -> Iterator[Tickwheel]:
    with Tickwheel(tickwheel_server.url, namespace=namespace, history="relay") as opened:
        yield opened


@pytest.fixture
def relaying(tickwheel_server: PrivateServer, namespace: str, kafka: Kafka, topic: str, tmp_path: Path) -> Relaying:
    """Return a function that runs an event process with a relay, for use in a `with`."""
    producers = KafkaProducers(kafka.bootstrap, topic)
    return lambda: run_event_process(tickwheel_server.url, namespace, tmp_path / "lock", producers)


def with_number(entry: bytes, number: int) -> bytes:
    """Return the entry as an event of another queue."""
    return entry[:7] + number.to_bytes(2, "big") + entry[9:]


def add_corrupt_entries(server: Any, events: str) -> int:
    """Add entries that no script has written. Return their number."""
    [(_, fields), *_] = server.xrange(events)
    honest = fields[b"e"]
    corrupt = [
        *(b"", b"garbage", b"\xff" * 50, bytes(50), b"\x03", b"\x03" + b"\xff" * 40),
        *(honest[:-1], honest[:20], honest + b"x", with_number(honest, UNKNOWN_QUEUE)),
        # The number of a second queue that the metadata shard does not have.
        with_number(honest, UNKNOWN_QUEUE + 1),
        # Entries that are larger than those of scripts. The worker of this event has no name.
        honest + bytes(ENTRY_BYTES),
        honest[:10] + honest[10:] * ENTRY_TRANSITIONS,
    ]
    for entry in corrupt:
        server.xadd(events, {"x": entry})
    return len(corrupt)


def test_the_relay_skips_logs_and_counts_corrupt_entries_and_publishes_all_others(
    tw: Tickwheel, relaying: Relaying, namespace: str, server: Any, kafka: Kafka, topic: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    queue, events = tw.create_queue("q"), shard_key(namespace, 0, "events")
    queue.enqueue_many(NewMessage(id=f"before{n}") for n in range(COUNT))
    count = add_corrupt_entries(server, events)
    server.hset(shard_key(namespace, 0, "clock"), "outbox", b"9" * 12)
    with relaying() as process:
        eventually(lambda: server.xlen(events) == 0, "the outbox is relayed and trimmed", 60)
        assert process.health()[0].corrupt_events == count
        # A window with corrupt entries only.
        server.xadd(events, {"x": "garbage"})
        eventually(lambda: server.xlen(events) == 0, "the entry is trimmed", 60)
        # The wrong number of bytes does not outlive the entries.
        eventually(lambda: server.hget(shard_key(namespace, 0, "clock"), "outbox") == b"0", "the outbox has no bytes")
        queue.enqueue_many(NewMessage(id=f"after{n}") for n in range(COUNT))
        eventually(lambda: server.xlen(events) == 0, "the outbox is relayed and trimmed", 60)
        assert process.health()[0].corrupt_events == count + 1
    wanted = [f"{when}{n}" for when in ("before", "after") for n in range(COUNT)]
    # The topic has several partitions, so only the events of one message have an order.
    assert sorted(value["id"] for _, value in read_json(kafka, topic)) == sorted(wanted)
    lines = [record for record in caplog.records if "of the outbox, because it is not an event" in record.message]
    assert [line.levelno for line in lines][:1] == [logging.WARNING]
    assert all(line.message.isprintable() for line in lines)


def test_the_relay_waits_for_a_queue_whose_configuration_is_unreadable(
    tw: Tickwheel, relaying: Relaying, namespace: str, server: Any, kafka: Kafka, topic: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    queue, events = tw.create_queue("q"), shard_key(namespace, 0, "events")
    queue.enqueue_many(NewMessage(id=f"m{n}") for n in range(COUNT))
    stored = server.hget(queues_key(namespace), "q")
    server.hset(queues_key(namespace), "q", "{")
    with relaying() as process:
        eventually(lambda: any("perhaps that of this queue" in line for line in caplog.messages), "the relay waits")
        assert server.xlen(events) == 1
        server.hset(queues_key(namespace), "q", stored)
        eventually(lambda: server.xlen(events) == 0, "the outbox is relayed and trimmed", 60)
        assert process.health()[0].corrupt_events == 0
    assert sorted(value["id"] for _, value in read_json(kafka, topic)) == [f"m{n}" for n in range(COUNT)]


def test_the_relay_does_not_skip_an_event_of_a_later_version(
    tw: Tickwheel, relaying: Relaying, namespace: str, server: Any, kafka: Kafka, topic: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    queue, events = tw.create_queue("q"), shard_key(namespace, 0, "events")
    later = server.xadd(events, {"e": b"\x05" + bytes(40)})
    queue.enqueue(id="m")
    with relaying():
        eventually(lambda: any("has the format of a later version" in line for line in caplog.messages), "the log")
        assert server.xlen(events) == 2
        server.xdel(events, later)
        eventually(lambda: server.xlen(events) == 0, "the outbox is relayed and trimmed", 60)
    assert [value["id"] for _, value in read_json(kafka, topic)] == ["m"]


def test_the_largest_entry_that_a_script_adds_is_below_the_limits(tw: Tickwheel, namespace: str, server: Any) -> None:
    queue, key = tw.create_queue("q", exclusive_key="v"), "k" * limits.PAIR_KEY_BYTES
    value = "v" * limits.PAIR_VALUE_BYTES
    metadata = {"v": value} | {f"{n:02}{key[2:]}": value for n in range(limits.PAIRS_MAX - 1)}
    queue.enqueue_many(NewMessage(id=f"{n:0{limits.ID_BYTES}}", metadata=metadata) for n in range(limits.CALL_MESSAGES))
    queue.purge()
    entries = [fields[b"e"] for _, fields in server.xrange(shard_key(namespace, 0, "events"))]
    assert max(len(decode(entry)) for entry in entries) < ENTRY_TRANSITIONS / 2
    assert max(map(len, entries)) < ENTRY_BYTES / 4


@pytest.mark.parametrize(("first", "is_later"), [(0, False), (2, False), (5, True), (31, True), (32, False)])
def test_a_format_of_a_later_version_is_a_small_number(first: int, is_later: bool) -> None:
    with pytest.raises(ValueError, match="unknown format") as error:
        decode(bytes([first, *range(20)]))
    assert isinstance(error.value, UnknownFormat) == is_later
