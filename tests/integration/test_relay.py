"""The relay publishes every transition to Kafka, in order for each message, and then trims it from the outbox."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import tickwheel.events
from services.kafka import Kafka
from tests.support.event_process_thread import run_event_process
from tests.support.kafka_topics import read_json
from tests.support.wait_until import eventually
from tickwheel import InvalidArgument, NewMessage, Queue, QueueNotEmpty, Tickwheel, TickwheelError, events, limits
from tickwheel.doctor import audit
from tickwheel.event_process import EventProcess
from tickwheel.event_process.assembly import open_event_process
from tickwheel.event_process.queue_directory import QueueDirectory
from tickwheel.kafka.producer import KafkaProducers
from tickwheel.storage.keys import shard_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

SCHEMA = json.loads((Path(tickwheel.events.__file__).parent / "transition.schema.json").read_text())
IDLE = timedelta(seconds=2)
Relaying = Callable[[], AbstractContextManager[EventProcess]]


@pytest.fixture
def tw(tickwheel_server: PrivateServer, namespace: str) -> Iterator[Tickwheel]:
    """A namespace of two shards that keeps its events until they are relayed."""
    with Tickwheel(tickwheel_server.url, namespace=namespace, shards=2, history="relay") as opened:
        yield opened
        assert opened._run(audit(opened._context)) == []


@pytest.fixture
def relaying(tw: Tickwheel, tickwheel_server: PrivateServer, kafka: Kafka, topic: str, tmp_path: Path) -> Relaying:
    """Return a function that runs an event process with a relay, for use in a `with`."""
    lock = tmp_path / "lock"
    return lambda: run_event_process(
        tickwheel_server.url, tw._context.namespace, lock, KafkaProducers(kafka.bootstrap, topic)
    )


def in_outbox(tw: Tickwheel, server: Any) -> int:
    keys = [shard_key(tw._context.namespace, shard, "events") for shard in range(tw._context.shards)]
    return sum(server.xlen(key) for key in keys)


def relayed(tw: Tickwheel, server: Any) -> None:
    eventually(lambda: in_outbox(tw, server) == 0, "all events are relayed and trimmed", 60)


def every_kind(tw: Tickwheel) -> tuple[Queue, Queue]:
    """Create messages of a plain and an exclusive queue that make every transition except the end of retention."""
    plain = tw.create_queue("plain", max_attempts=2)
    owned = tw.create_queue("owned", exclusive_key="owner", max_attempts=2)
    for queue, pairs in ((plain, {"owner": "ann", 'quote"\\': "line\nü \u2028"}), (owned, {"owner": 'bo"b'})):
        value = pairs["owner"] if queue is owned else None
        for n, id in enumerate(("done", "failed", "expired", "errored", "cancelled", "moved")):
            lease = timedelta(seconds=1) if id == "expired" else None
            delay = timedelta(hours=1) if id == "moved" else None
            queue.enqueue(id=id, metadata=pairs, delay=delay, deadline=timedelta(days=n), lease=lease)
        queue.cancel("cancelled", value)
        queue.reschedule("moved", value, delay=timedelta(milliseconds=1))
        left = {"done", "failed", "expired", "errored", "moved"}
        while left:
            for message in queue.dequeue(worker='w "1"', wait=timedelta(seconds=5)):
                if message.id == "errored":
                    message.fail("x", retry_in=timedelta(0))
                elif message.attempt == 1 and message.id == "failed":
                    message.fail("x", retry_in=timedelta(milliseconds=1))
                elif message.attempt > 1 or message.id != "expired":
                    message.complete()
            left = {id for id in left if queue.get(id, value).state not in ("completed", "errored")}
    return plain, owned


def test_every_transition_is_published_by_the_schema_and_only_then_trimmed(
    tw: Tickwheel, server: Any, kafka: Kafka, topic: str, relaying: Relaying
) -> None:
    with relaying() as process:
        every_kind(tw)
        relayed(tw, server)
        eventually(
            lambda: all(s.outbox_bytes == 0 for s in process.health().values()), "the metrics report an empty outbox"
        )
    records = read_json(kafka, topic)
    validator = Draft202012Validator(SCHEMA)
    for key, value in records:
        validator.validate(value)
        identity = [value["queue"], value["id"]] + (
            [value["exclusive_value"]] if value["exclusive_value"] is not None else []
        )
        assert key == identity
    kinds = {(value["from"], value["to"]) for _, value in records}
    assert kinds >= {
        *((None, "invisible"), (None, "pending"), ("invisible", "pending"), ("pending", "running")),
        *(("running", "completed"), ("running", "invisible"), ("running", "pending"), ("running", "errored")),
        *(("pending", "cancelled"), ("invisible", "invisible")),
    }


def test_the_age_of_the_outbox_grows_even_if_its_oldest_entry_is_ahead_of_the_servers_clock(
    tw: Tickwheel, tickwheel_server: PrivateServer, server: Any, tmp_path: Path
) -> None:
    namespace = tw._context.namespace
    tw.queue("plain").enqueue()
    [events_key] = [key for n in range(2) if server.exists(key := shard_key(namespace, n, "events"))]
    [(_, fields)] = server.xrange(events_key)
    server.delete(events_key)
    seconds, _ = server.time()
    ahead_ms = (seconds + 600) * 1000
    entry = fields[b"e"][:1] + ahead_ms.to_bytes(6) + fields[b"e"][7:]
    server.xadd(events_key, {"e": entry}, id=f"{ahead_ms}-0")
    unreachable = KafkaProducers("127.0.0.1:1", "none")
    with run_event_process(tickwheel_server.url, namespace, tmp_path / "lock", unreachable) as process:
        eventually(lambda: any(s.outbox_age_ms > 500 for s in process.health().values()), "the metric grows")


def test_read_yields_each_transition_once_and_in_order(
    tw: Tickwheel, server: Any, kafka: Kafka, topic: str, relaying: Relaying
) -> None:
    with relaying():
        plain, _ = every_kind(tw)
        relayed(tw, server)
    transitions = list(events.read(kafka.bootstrap, topic=topic, idle=IDLE))
    lives: dict[tuple[str, str, str | None], list[events.Transition]] = {}
    for one in transitions:
        lives.setdefault((one.queue, one.id, one.exclusive_value), []).append(one)
    for life in lives.values():
        assert [one.version for one in life] == list(range(1, len(life) + 1))
        assert [one.from_state for one in life] == [None, *[one.to_state for one in life[:-1]]]
    new = lives["plain", "done", None][0]
    assert new.metadata == {"owner": "ann", 'quote"\\': "line\nü \u2028"}
    assert new.deadline == plain.get("done").deadline
    assert lives["plain", "done", None][1].worker == 'w "1"'


def test_events_of_a_queue_with_the_number_of_a_deleted_queue_have_its_name(
    tw: Tickwheel, server: Any, kafka: Kafka, topic: str, relaying: Relaying, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_deleted() -> bool:
        try:
            tw.delete_queue("old", purge=True)
        except QueueNotEmpty:
            return False
        return True

    monkeypatch.setattr(limits, "QUEUES_MAX", 1)
    # The event process does not learn of changes: as if the relay read the events before the process read the queues.
    monkeypatch.setattr(QueueDirectory, "queues_with_sinks", lambda *_: {})
    with relaying():
        old = tw.create_queue("old")
        old.enqueue_many(NewMessage(id=f"old{n}") for n in range(10))
        eventually(is_deleted, "the events of the old queue are relayed, and the queue is deleted", 60)
        new = tw.create_queue("new")
        assert new.config().number == 1
        new.enqueue_many(NewMessage(id=f"new{n}") for n in range(10))
        relayed(tw, server)
    assert {(value["queue"], value["id"][:3]) for _, value in read_json(kafka, topic)} == {
        ("old", "old"),
        ("new", "new"),
    }


def test_an_event_published_twice_is_read_once(
    tw: Tickwheel, server: Any, kafka: Kafka, topic: str, relaying: Relaying
) -> None:
    tw.create_queue("q").enqueue_many(NewMessage(id=f"m{n}") for n in range(3_000))
    keys = [shard_key(tw._context.namespace, shard, name) for shard in range(2) for name in ("events", "clock")]
    dumps = {key: server.dump(key) for key in keys}
    with relaying():
        relayed(tw, server)
    # As after a relay that was killed between the acknowledgement and the trim.
    for key, dumped in dumps.items():
        server.restore(key, 0, dumped, replace=True)
    with relaying():
        relayed(tw, server)
    assert len(read_json(kafka, topic)) == 6_000
    transitions = list(events.read(kafka.bootstrap, topic=topic, idle=IDLE))
    assert sorted(one.id for one in transitions) == sorted(f"m{n}" for n in range(3_000))


def test_consecutive_event_processes_leave_no_gap(
    tw: Tickwheel, server: Any, kafka: Kafka, topic: str, relaying: Relaying
) -> None:
    queue = tw.create_queue("q")
    for turn in range(4):
        with relaying():
            queue.enqueue_many(NewMessage(id=f"{turn} {n}") for n in range(500))
            queue.complete_many(queue.dequeue(300))
    with relaying():
        relayed(tw, server)
    gaps: list[events.Gap] = []
    transitions = list(events.read(kafka.bootstrap, topic=topic, idle=IDLE, on_gap=gaps.append))
    assert (len({one.id for one in transitions if one.version == 1}), gaps) == (2_000, [])
    assert len(transitions) == 2_000 + 2 * 4 * 300


def test_readers_of_a_group_continue_at_its_position(
    tw: Tickwheel, server: Any, kafka: Kafka, topic: str, relaying: Relaying
) -> None:
    group = os.urandom(6).hex()
    queue = tw.create_queue("q")
    with relaying():
        queue.enqueue_many(NewMessage(id=f"a{n}") for n in range(100))
        relayed(tw, server)
        first = list(events.read(kafka.bootstrap, topic=topic, group=group, idle=IDLE))
        queue.enqueue_many(NewMessage(id=f"b{n}") for n in range(100))
        relayed(tw, server)
        second = list(events.read(kafka.bootstrap, topic=topic, group=group, idle=IDLE))
    assert {one.id[0] for one in first} == {"a"}
    assert sorted(one.id for one in second) == sorted(f"b{n}" for n in range(100))


def test_a_namespace_without_history_for_a_relay_is_refused(
    tickwheel_server: PrivateServer, namespace: str, kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    Tickwheel(tickwheel_server.url, namespace=namespace).close()
    broker = KafkaProducers(kafka.bootstrap, topic)
    with (
        pytest.raises(InvalidArgument, match="history='relay'"),
        open_event_process(tickwheel_server.url, namespace, tmp_path / "lock", producers=broker),
    ):
        pass
    broker.close()


@pytest.mark.parametrize("group", [None, "readers"])
def test_a_missing_topic_is_refused_with_and_without_a_group(kafka: Kafka, group: str | None) -> None:
    with pytest.raises(TickwheelError, match=r"topic 'no-such-topic' cannot be read"):
        events.read(kafka.bootstrap, topic="no-such-topic", group=group)
