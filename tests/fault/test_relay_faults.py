"""Kafka is killed or frozen, relays are killed: no event is lost, the order is kept, the outbox stays bounded."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from services.kafka import Kafka
from services.replica_set import ReplicaSet
from tests.fault.event_processes import EventProcessChild
from tests.support.event_process_thread import run_event_process
from tests.support.kafka_topics import make_topic
from tests.support.repeated_step import repeated
from tests.support.wait_until import eventually
from tickwheel import NewMessage, OutboxFull, Queue, Tickwheel, events
from tickwheel.kafka.producer import KafkaProducers
from tickwheel.storage.keys import shard_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.fault

IDLE = timedelta(seconds=3)
SMALL = 64 * 1024
OpenClient = Callable[..., Tickwheel]


@pytest.fixture
def open_client(tickwheel_server: PrivateServer) -> Iterator[OpenClient]:
    """Open clients of one new namespace whose history is relayed."""
    namespace = f"fault-{os.urandom(6).hex()}"
    opened: list[Tickwheel] = []

    def open_with(**settings: Any) -> Tickwheel:
        opened.append(Tickwheel(tickwheel_server.url, namespace=namespace, history="relay", **settings))
        return opened[-1]

    yield open_with
    for tickwheel in opened:
        tickwheel.close()
    tickwheel_server.clear(namespace)


@dataclass
class Load:
    """Enqueues and completes messages, one batch after the other, until ``stopping`` is set."""

    queue: Queue
    done: list[str] = field(default_factory=list)
    refused: int = 0
    enqueued: int = 0
    stopping: threading.Event = field(default_factory=threading.Event)

    def running(self) -> AbstractContextManager[None]:
        return repeated(self._step, 0.02, self.stopping)

    def _step(self) -> None:
        try:
            self.queue.enqueue_many(NewMessage(id=f"m{self.enqueued + k}", metadata={"k": "v"}) for k in range(10))
            self.enqueued += 10
        except OutboxFull:
            self.refused += 1
        messages = self.queue.dequeue(10)
        self.queue.complete_many(messages)
        self.done += [message.id for message in messages]


def run_relay(server: PrivateServer, tw: Tickwheel, lock: Path, broker: Kafka, topic: str) -> EventProcessChild:
    """Return an event process that relays to ``topic``."""
    return EventProcessChild(server.url, tw._context.namespace, lock, "--kafka", broker.bootstrap, "--topic", topic)


def outbox_bytes(tw: Tickwheel, server: Any) -> int:
    """Return the size of the events that are not relayed yet."""
    return int(server.hget(shard_key(tw._context.namespace, 0, "clock"), "outbox") or 0)


def check_history(broker: Kafka, topic: str, ids: list[str]) -> None:
    """Check that the topic has versions 1 to 3 of every message, in order, each once."""
    gaps: list[events.Gap] = []
    unreadable: list[events.UnreadableRecord] = []
    lives: dict[str, list[int]] = {}
    for event in events.read(
        broker.bootstrap, topic=topic, idle=IDLE, on_gap=gaps.append, on_unreadable=unreadable.append
    ):
        lives.setdefault(event.id, []).append(event.version)
    assert (gaps, unreadable) == ([], [])
    assert {id: lives.get(id) for id in ids} == {id: [1, 2, 3] for id in ids}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", ["killed", "frozen"])
def test_a_kafka_outage_under_load_loses_no_event_and_stops_no_client(
    open_client: OpenClient, server: Any, tickwheel_server: PrivateServer, broker: Kafka, tmp_path: Path, fault: str
) -> None:
    tw, topic = open_client(), make_topic(broker)
    load = Load(tw.create_queue("q"))
    with run_relay(tickwheel_server, tw, tmp_path / "lock", broker, topic), load.running():
        eventually(lambda: len(load.done) > 200, "messages are completed and relayed")
        broker.kill() if fault == "killed" else broker.pause()
        before = len(load.done)
        eventually(lambda: len(load.done) > before + 1_000, "messages are completed without Kafka", 60)
        assert outbox_bytes(tw, server) > 0
        broker.start() if fault == "killed" else broker.resume()
        before = len(load.done)
        eventually(lambda: len(load.done) > before + 200, "messages are completed after the outage")
        load.stopping.set()
        eventually(lambda: outbox_bytes(tw, server) == 0, "the outbox is relayed", 120)
    check_history(broker, topic, load.done)


@pytest.mark.timeout(300)
def test_a_full_outbox_rejects_only_new_messages_until_kafka_is_back(
    open_client: OpenClient, server: Any, tickwheel_server: PrivateServer, broker: Kafka, tmp_path: Path
) -> None:
    tw, topic = open_client(outbox_limit=SMALL), make_topic(broker)
    load = Load(tw.create_queue("q"))
    broker.kill()
    with run_relay(tickwheel_server, tw, tmp_path / "lock", broker, topic) as process:
        with load.running():
            eventually(lambda: load.refused > 5, "enqueues are refused", 60)
            full = len(load.done)
            assert SMALL <= outbox_bytes(tw, server) < SMALL * 1.1
            eventually(lambda: "new messages are rejected" in process.log, "the rejection is logged")
            broker.start()
            eventually(lambda: len(load.done) > full + 200, "new messages are accepted again", 120)
        eventually(lambda: outbox_bytes(tw, server) == 0, "the outbox is relayed", 120)
    check_history(broker, topic, load.done)


@pytest.mark.timeout(300)
def test_relays_killed_at_any_time_lose_no_event(
    open_client: OpenClient, server: Any, tickwheel_server: PrivateServer, broker: Kafka, tmp_path: Path
) -> None:
    tw, topic = open_client(), make_topic(broker)
    load = Load(tw.create_queue("q"))
    with load.running():
        for turn in range(4):
            before = len(load.done)
            with run_relay(tickwheel_server, tw, tmp_path / f"lock {turn}", broker, topic) as process:
                eventually(lambda before=before: len(load.done) > before + 300, "messages are completed", 60)  # type: ignore[misc]
                process.kill()
    with run_relay(tickwheel_server, tw, tmp_path / "lock", broker, topic):
        eventually(lambda: outbox_bytes(tw, server) == 0, "the outbox is relayed", 120)
    check_history(broker, topic, load.done)


def test_a_relay_publishes_no_event_that_the_required_replicas_lack(
    replica_set: ReplicaSet, broker: Kafka, tmp_path: Path
) -> None:
    topic, namespace = make_topic(broker), f"fault-{os.urandom(6).hex()}"
    with Tickwheel(replica_set.url, namespace=namespace, history="relay") as tw:
        producers = KafkaProducers(broker.bootstrap, topic)
        with run_event_process(replica_set.url, namespace, tmp_path / "lock", producers, replicas=1) as process:
            eventually(lambda: process.health()[0].epoch > 0, "the event process leads the shard")
            with replica_set.replicas[0].paused():
                tw.queue("q").enqueue(id="m")
                # Twice the time after which the relay stops waiting for the replica and retries.
                deadline = time.monotonic() + 3
                eventually(lambda: process.health()[0].relayed > 0 or time.monotonic() > deadline, "the relay had time")
                assert process.health()[0].relayed == 0
            eventually(lambda: process.health()[0].relayed == 1, "the event is published")
    assert [event.id for event in events.read(broker.bootstrap, topic=topic, idle=IDLE)] == ["m"]
