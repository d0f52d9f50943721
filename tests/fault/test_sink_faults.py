"""Sinks under faults: Kafka is unreachable, an event process is killed, a topic rejects a message."""

import os
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from services.kafka import Kafka
from tests.fault.event_processes import EventProcessChild
from tests.support.kafka_topics import make_topic, read_topic
from tests.support.repeated_step import repeated
from tests.support.wait_until import eventually
from tickwheel import NewMessage, Queue, Tickwheel
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.fault


@pytest.fixture
def tw(tickwheel_server: PrivateServer) -> Iterator[Tickwheel]:
    namespace = f"fault-{os.urandom(6).hex()}"
    with Tickwheel(tickwheel_server.url, namespace=namespace, history="relay") as opened:
        yield opened
    tickwheel_server.clear(namespace)


def run_driver(tw: Tickwheel, lock: Path, broker: Kafka) -> EventProcessChild:
    options = "--kafka", broker.bootstrap, "--topic", make_topic(broker)
    return EventProcessChild(str(tw._client_settings.url), tw._context.namespace, lock, *options)


def count_ids(broker: Kafka, topic: str) -> Counter[str]:
    """Return how often each message is in the topic."""
    return Counter(dict(record.headers())["tickwheel-id"].decode() for record in read_topic(broker, topic))


def wait_until_completed(queue: Queue, count: int, within: float = 120) -> None:
    eventually(lambda: queue.counts()["completed"] == count, f"{count} messages are completed", within, pause=0.05)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", ["killed", "frozen"])
def test_a_kafka_outage_longer_than_the_leases_uses_up_no_attempt(
    tw: Tickwheel, broker: Kafka, tmp_path: Path, fault: str
) -> None:
    topic = make_topic(broker)
    queue = tw.create_queue("q", sink=f"kafka://{topic}", lease=timedelta(seconds=6), max_attempts=1)
    sent = 0

    def enqueue() -> None:
        nonlocal sent
        queue.enqueue_many(NewMessage(id=f"m{sent + n}", delay=timedelta(milliseconds=10 * n)) for n in range(10))
        sent += 10

    with run_driver(tw, tmp_path / "lock", broker):
        with repeated(enqueue, 0.04):
            eventually(lambda: queue.counts()["completed"] > 200, "messages are forwarded", 60)
            broker.kill() if fault == "killed" else broker.pause()
            # The load lasts nearly two leases.
            at = sent
            eventually(lambda: sent > at + 2_500, "the load continues without Kafka", 60)
            assert queue.counts()["errored"] == 0
            broker.start() if fault == "killed" else broker.resume()
        wait_until_completed(queue, sent)
    assert set(count_ids(broker, topic)) == {f"m{n}" for n in range(sent)}


@pytest.mark.timeout(300)
def test_the_successor_of_a_killed_event_process_forwards_the_rest_and_repeats_only_messages_in_flight(
    tw: Tickwheel, broker: Kafka, tmp_path: Path
) -> None:
    topic = make_topic(broker)
    queue = tw.create_queue("q", sink=f"kafka://{topic}", lease=timedelta(seconds=2))
    queue.enqueue_many(NewMessage(id=f"m{n}") for n in range(20_000))
    with run_driver(tw, tmp_path / "lock", broker) as first:
        eventually(lambda: queue.counts()["completed"] > 2_000, "some messages are forwarded", 60)
        first.kill()
    with run_driver(tw, tmp_path / "lock", broker):
        wait_until_completed(queue, 20_000)
    copies = count_ids(broker, topic)
    assert set(copies) == {f"m{n}" for n in range(20_000)}
    assert sum(copies.values()) - len(copies) <= 1_000


@pytest.mark.timeout(300)
def test_a_message_that_a_topic_rejects_is_errored_with_the_reason_and_delays_no_other_message(
    tw: Tickwheel, broker: Kafka, tmp_path: Path
) -> None:
    topic = make_topic(broker, max_message_bytes="100000")
    once = timedelta(milliseconds=1)
    queue = tw.create_queue(
        "q", sink=f"kafka://{topic}", max_attempts=3, backoff=once, backoff_max=once, payload_limit=200_000
    )
    with run_driver(tw, tmp_path / "lock", broker):
        queue.enqueue(os.urandom(200_000), id="large")
        queue.enqueue_many(NewMessage(id=f"m{n}") for n in range(100))
        eventually(lambda: queue.get("large").state == "errored", "the large message is errored", 60)
        wait_until_completed(queue, 100)
    large = queue.get("large")
    assert large.attempt == 3
    assert "too large" in large.error.lower()
    assert set(count_ids(broker, topic)) == {f"m{n}" for n in range(100)}
