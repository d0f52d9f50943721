"""Kafka killed or frozen, and relays killed: nothing is lost, order holds, the outbox stays bounded."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from tests.support.wait_until import eventually
from tickwheel import NewMessage, OutboxFull, Queue, Tickwheel, events
from tickwheel.kafka.producer import KafkaProducers
from tickwheel.storage.keys import shard_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.fault

IDLE = timedelta(seconds=3)
SMALL = 64 * 1024
Open = Callable[..., Tickwheel]


@pytest.fixture
def open_one(tickwheel_server: PrivateServer) -> Iterator[Open]:
    """Opens a client of a new namespace that is relayed."""
    namespace = f"fault-{os.urandom(6).hex()}"
    opened: list[Tickwheel] = []

    def with_settings(**settings: Any) -> Tickwheel:
        opened.append(Tickwheel(tickwheel_server.url, namespace=namespace, history="relay", **settings))
        return opened[-1]

    yield with_settings
    for tickwheel in opened:
        tickwheel.close()
    tickwheel_server.clear(namespace)


@dataclass
class Load:
    """Whole lives, one batch after the other, until it is stopped."""

    queue: Queue
    done: list[str] = field(default_factory=list)
    refused: int = 0
    stopping: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self.stopping.set()
            thread.join(60)
        assert not thread.is_alive()

    def _run(self) -> None:
        n = 0
        while not self.stopping.wait(0.02):
            try:
                self.queue.enqueue_many(NewMessage(id=f"m{n + k}", metadata={"k": "v"}) for k in range(10))
                n += 10
            except OutboxFull:
                self.refused += 1
            messages = self.queue.dequeue(10)
            self.queue.complete_many(messages)
            self.done += [message.id for message in messages]


def relaying(server: PrivateServer, tw: Tickwheel, lock: Path, broker: Kafka, topic: str) -> EventProcessChild:
    """An event process that relays."""
    return EventProcessChild(server.url, tw._context.namespace, lock, "--kafka", broker.bootstrap, "--topic", topic)


def outbox(tw: Tickwheel, server: Any) -> int:
    """Bytes of events that wait to be relayed."""
    return int(server.hget(shard_key(tw._context.namespace, 0, "clock"), "outbox") or 0)


def complete_history(broker: Kafka, topic: str, ids: list[str]) -> None:
    """Every message is there from its first version to the third, in order, each once."""
    gaps: list[events.Gap] = []
    lives: dict[str, list[int]] = {}
    for one in events.read(broker.bootstrap, topic=topic, idle=IDLE, on_gap=gaps.append):
        lives.setdefault(one.id, []).append(one.version)
    assert gaps == []
    assert {id: lives.get(id) for id in ids} == {id: [1, 2, 3] for id in ids}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", ["killed", "frozen"])
def test_kafka_away_at_load_loses_nothing_and_stops_nobody(
    open_one: Open, server: Any, tickwheel_server: PrivateServer, broker: Kafka, tmp_path: Path, fault: str
) -> None:
    tw, topic = open_one(), make_topic(broker)
    load = Load(tw.create_queue("q"))
    with relaying(tickwheel_server, tw, tmp_path / "lock", broker, topic), load.running():
        eventually(lambda: len(load.done) > 200, "lives pass and are relayed")
        broker.kill() if fault == "killed" else broker.pause()
        at = len(load.done)
        eventually(lambda: len(load.done) > at + 1_000, "lives pass without Kafka", 60)
        assert outbox(tw, server) > 0
        broker.start() if fault == "killed" else broker.resume()
        at = len(load.done)
        eventually(lambda: len(load.done) > at + 200, "lives pass after it")
        load.stopping.set()
        eventually(lambda: outbox(tw, server) == 0, "the outbox is relayed", 120)
    complete_history(broker, topic, load.done)


@pytest.mark.timeout(300)
def test_a_full_outbox_refuses_new_messages_until_kafka_is_back_and_lets_all_else_through(
    open_one: Open, server: Any, tickwheel_server: PrivateServer, broker: Kafka, tmp_path: Path
) -> None:
    tw, topic = open_one(outbox_limit=SMALL), make_topic(broker)
    load = Load(tw.create_queue("q"))
    broker.kill()
    with relaying(tickwheel_server, tw, tmp_path / "lock", broker, topic) as process:
        with load.running():
            eventually(lambda: load.refused > 5, "enqueues are refused", 60)
            full = len(load.done)
            assert SMALL <= outbox(tw, server) < SMALL * 1.1
            eventually(lambda: "new messages are rejected" in process.log, "the log says so")
            broker.start()
            eventually(lambda: len(load.done) > full + 200, "new messages are taken again", 120)
        eventually(lambda: outbox(tw, server) == 0, "the outbox is relayed", 120)
    complete_history(broker, topic, load.done)


@pytest.mark.timeout(300)
def test_relays_killed_at_any_time_repeat_some_and_lose_none(
    open_one: Open, server: Any, tickwheel_server: PrivateServer, broker: Kafka, tmp_path: Path
) -> None:
    tw, topic = open_one(), make_topic(broker)
    load = Load(tw.create_queue("q"))
    with load.running():
        for turn in range(4):
            at = len(load.done)
            with relaying(tickwheel_server, tw, tmp_path / f"lock {turn}", broker, topic) as process:
                eventually(lambda at=at: len(load.done) > at + 300, "lives pass", 60)  # type: ignore[misc]
                process.kill()
    with relaying(tickwheel_server, tw, tmp_path / "lock", broker, topic):
        eventually(lambda: outbox(tw, server) == 0, "the outbox is relayed", 120)
    complete_history(broker, topic, load.done)


def test_a_relay_publishes_nothing_that_the_replicas_asked_for_do_not_have(
    replica_set: ReplicaSet, broker: Kafka, tmp_path: Path
) -> None:
    topic, namespace = make_topic(broker), f"fault-{os.urandom(6).hex()}"
    with Tickwheel(replica_set.url, namespace=namespace, history="relay") as tw:
        relayed = KafkaProducers(broker.bootstrap, topic)
        with run_event_process(replica_set.url, namespace, tmp_path / "lock", relayed, replicas=1) as process:
            eventually(lambda: process.health()[0].epoch > 0, "it drives")
            with replica_set.replicas[0].paused():
                tw.queue("q").enqueue(id="m")
                # Twice the time that it waits for the replica, and begins again.
                looked = time.monotonic() + 3
                eventually(lambda: process.health()[0].relayed > 0 or time.monotonic() > looked, "it had time")
                assert process.health()[0].relayed == 0
            eventually(lambda: process.health()[0].relayed == 1, "it is published")
    assert [one.id for one in events.read(broker.bootstrap, topic=topic, idle=IDLE)] == ["m"]
