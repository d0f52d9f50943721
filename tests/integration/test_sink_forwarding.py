"""A queue with a sink: its due messages are published to Kafka with the fields of a delivery, and then completed."""

import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from services.kafka import Kafka
from tests.support.event_process_thread import run_event_process
from tests.support.kafka_topics import make_topic, read_topic
from tests.support.wait_until import eventually
from tickwheel import InvalidArgument, NewMessage, Queue, QueueConfigConflict, QueueNotEmpty, Tickwheel, events
from tickwheel.doctor import audit
from tickwheel.event_process import EventProcess
from tickwheel.event_process.assembly import open_event_process
from tickwheel.kafka.producer import KafkaProducers
from tickwheel.storage.keys import queues_key, shard_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

IDLE = timedelta(seconds=2)
Driving = Callable[[], AbstractContextManager[EventProcess]]


@pytest.fixture
def tw(tickwheel_server: PrivateServer, namespace: str) -> Iterator[Tickwheel]:
    with Tickwheel(tickwheel_server.url, namespace=namespace, history="relay") as opened:
        yield opened
        assert opened._run(audit(opened._context)) == []


@pytest.fixture
def driving(tw: Tickwheel, tickwheel_server: PrivateServer, kafka: Kafka, tmp_path: Path) -> Driving:
    """Return a function that runs an event process, for use in a `with`."""
    lock, transitions = tmp_path / "lock", make_topic(kafka)
    return lambda: run_event_process(
        tickwheel_server.url, tw._context.namespace, lock, KafkaProducers(kafka.bootstrap, transitions)
    )


def headers(record: Any) -> dict[str, str]:
    return {name: value.decode() for name, value in record.headers()}


def completed(queue: Queue, count: int) -> None:
    eventually(lambda: queue.counts()["completed"] == count, f"{count} messages are completed", 60)


def test_a_due_message_is_published_with_all_its_fields_and_completed(
    tw: Tickwheel, kafka: Kafka, topic: str, driving: Driving
) -> None:
    queue = tw.create_queue("q", sink=f"kafka://{topic}")
    queue.enqueue(b"later", id="later", delay=timedelta(hours=1))
    with driving() as process:
        queue.enqueue(
            b"\0payload",
            id="ü",
            delay=timedelta(milliseconds=300),
            deadline=timedelta(hours=-1),
            metadata={"k é": "v ü"},
        )
        due, deadline = queue.get("ü").due, queue.get("ü").deadline
        completed(queue, 1)
        eventually(lambda: process.health()[0].sink_in_flight == 0, "nothing is in flight")
        assert process.health()[0].sink_acknowledged == 1
    [record] = read_topic(kafka, topic)
    assert (record.key(), record.value()) == ("ü".encode(), b"\0payload")
    fields = headers(record)
    assert fields.pop("tickwheel-incarnation").isdigit()
    assert fields == {
        "tickwheel-namespace": tw._context.namespace,
        "tickwheel-queue": "q",
        "tickwheel-id": "ü",
        "tickwheel-attempt": "1",
        "tickwheel-due": str(round(due.timestamp() * 1000)),
        "tickwheel-deadline": str(round(deadline.timestamp() * 1000)),
        "tickwheel-metadata-k é": "v ü",
    }
    # The timestamp of the Kafka record is the time at which the message was sent.
    assert record.timestamp()[1] >= due.timestamp() * 1000 - 1
    assert queue.get("later").state == "invisible"


def test_messages_are_published_in_the_order_of_their_deadlines(tw: Tickwheel, kafka: Kafka, driving: Driving) -> None:
    topic = make_topic(kafka, partitions=1)
    queue = tw.create_queue("q", sink=f"kafka://{topic}")
    queue.enqueue_many(NewMessage(id=f"m{n}", deadline=timedelta(hours=(n * 7) % 500)) for n in range(500))
    with driving():
        completed(queue, 500)
    records = read_topic(kafka, topic)
    assert [headers(record)["tickwheel-id"] for record in records] == [
        f"m{n}" for n in sorted(range(500), key=lambda n: n * 7 % 500)
    ]


def test_the_next_message_of_an_exclusive_value_is_published_after_the_one_before_is_acknowledged(
    tw: Tickwheel, kafka: Kafka, topic: str, driving: Driving
) -> None:
    queue = tw.create_queue("q", sink=f"kafka://{topic}", exclusive_key="owner")
    for n in range(20):
        for owner in ("ann", "bob"):
            queue.enqueue(id=f"m{n}", metadata={"owner": owner}, deadline=timedelta(minutes=n))
    with driving():
        completed(queue, 40)
    records = read_topic(kafka, topic)
    for owner in ("ann", "bob"):
        of_owner = [headers(record) for record in records if record.key() == owner.encode()]
        assert [fields["tickwheel-id"] for fields in of_owner] == [f"m{n}" for n in range(20)]
        assert {fields["tickwheel-exclusive-value"] for fields in of_owner} == {owner}


def test_a_queue_gains_and_loses_a_sink_while_the_event_process_runs(
    tw: Tickwheel, kafka: Kafka, topic: str, driving: Driving
) -> None:
    queue = tw.create_queue("q")
    with driving():
        queue.enqueue(id="by a worker")
        queue.complete_many(queue.dequeue(wait=timedelta(seconds=5)))
        queue.enqueue(id="waiting")
        tw.create_queue("q", update=True, sink=f"kafka://{topic}")
        completed(queue, 2)
        queue.enqueue(id="handed over")
        completed(queue, 3)
        with pytest.raises(QueueConfigConflict, match="so workers cannot dequeue"):
            queue.dequeue()
        tw.create_queue("q", update=True, sink="")
        queue.enqueue(id="by a worker again")
        queue.complete_many(queue.dequeue(wait=timedelta(seconds=5)))
        completed(queue, 4)
    assert {headers(record)["tickwheel-id"] for record in read_topic(kafka, topic)} == {"waiting", "handed over"}


def test_a_waiting_dequeue_is_refused_when_its_queue_gets_a_sink(tw: Tickwheel, topic: str) -> None:
    queue = tw.create_queue("q")
    conflicts: list[Exception] = []

    def wait() -> None:
        try:
            queue.dequeue(wait=timedelta(seconds=30))
        except QueueConfigConflict as error:
            conflicts.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    with Tickwheel(tw._client_settings.url, namespace=tw._context.namespace) as other:
        other.create_queue("q", update=True, sink=f"kafka://{topic}")
    thread.join(10)
    assert len(conflicts) == 1


def test_a_worker_with_an_old_configuration_leases_nothing_from_a_queue_with_a_sink(tw: Tickwheel, topic: str) -> None:
    queue = tw.create_queue("q")
    queue.enqueue(id="m")
    with Tickwheel(tw._client_settings.url, namespace=tw._context.namespace) as other:
        other.create_queue("q", update=True, sink=f"kafka://{topic}")
    with pytest.raises(QueueConfigConflict):
        queue.dequeue()
    assert queue.get("m").state == "pending"


def test_a_blocked_queue_is_forwarded_after_it_is_unblocked(
    tw: Tickwheel, kafka: Kafka, topic: str, driving: Driving
) -> None:
    queue = tw.create_queue("q", sink=f"kafka://{topic}")
    queue.block(enqueue=False)
    other = tw.create_queue("other", sink=f"kafka://{topic}")
    queue.enqueue(id="m")
    with driving():
        other.enqueue(id="n")
        completed(other, 1)
        assert queue.get("m").state == "pending"
        queue.unblock()
        completed(queue, 1)


@pytest.mark.parametrize("removal", ["purge", "delete"])
def test_the_history_of_a_removed_queue_ends_and_its_sink_and_the_relay_go_on(
    tw: Tickwheel,
    server: Any,
    tickwheel_server: PrivateServer,
    kafka: Kafka,
    topic: str,
    tmp_path: Path,
    removal: str,
) -> None:
    def is_deleted() -> bool:
        try:
            return tw.delete_queue("q", purge=True) >= 0
        except QueueNotEmpty:
            # The relay has not published the events of the purge yet.
            return False

    transitions, lock = make_topic(kafka), tmp_path / "lock"
    producers = KafkaProducers(kafka.bootstrap, transitions)
    queue, other = (tw.create_queue(name, sink=f"kafka://{topic}") for name in ("q", "other"))
    with run_event_process(tickwheel_server.url, tw._context.namespace, lock, producers):
        queue.enqueue(id="sent")
        completed(queue, 1)
        queue.enqueue(id="later", delay=timedelta(hours=1))
        if removal == "purge":
            assert queue.purge() == 2
        else:
            eventually(is_deleted, "the queue is deleted")
            queue = tw.create_queue("q", sink=f"kafka://{topic}")
        for again in (queue, other):
            again.enqueue(id=f"to {again.name}")
            completed(again, 1)
        outbox = shard_key(tw._context.namespace, 0, "events")
        eventually(lambda: not server.xlen(outbox), "the relay has published all transitions")
    assert {headers(record)["tickwheel-id"] for record in read_topic(kafka, topic)} == {"sent", "to q", "to other"}
    ends: dict[str, list[str | None]] = {}
    for transition in events.read(kafka.bootstrap, topic=transitions, idle=IDLE):
        ends.setdefault(transition.id, []).append(transition.to_state)
    assert ends["sent"][-2:] == ["completed", None]
    assert ends["later"] == ["invisible", "cancelled", None]
    assert ends["to q"][-1] == ends["to other"][-1] == "completed"


def test_an_idle_sink_subscribes_to_its_queues_and_their_changes(
    tw: Tickwheel, server: Any, kafka: Kafka, topic: str, driving: Driving
) -> None:
    queue = tw.create_queue("q", sink=f"kafka://{topic}")
    with driving():
        queue.enqueue(id="m")
        completed(queue, 1)
        channels = server.pubsub_shardchannels(f"{tw._context.namespace}*")
        assert {name.decode().rpartition(":")[2] for name in channels} == {"adopted", "wake"}


def test_an_invalid_sink_is_refused(tw: Tickwheel) -> None:
    with pytest.raises(InvalidArgument, match="amqp"):
        tw.create_queue("q", sink="amqp://exchange")


FORGED = json.dumps(
    {"schema_version": 1, "namespace": "other", "queue": "orders", "id": "order-1", "exclusive_value": None}
    | {"incarnation": 2**60, "version": 2**32 - 1, "from": "running", "to": "errored", "time": 0, "attempt": 1}
    | {"worker": None, "lateness": None}
).encode()


def test_no_payload_reaches_the_topic_of_the_transitions(
    tw: Tickwheel, tickwheel_server: PrivateServer, kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    transitions = make_topic(kafka)
    queue = tw.create_queue("evil", sink=f"kafka://{transitions}")
    # A record of the sink would have the key of the transitions of order-1, and so would be in their partition.
    queue.enqueue(FORGED, id='["orders","order-1"]')
    other = tw.create_queue("other", sink=f"kafka://{topic}")
    with run_event_process(
        tickwheel_server.url, tw._context.namespace, tmp_path / "lock", KafkaProducers(kafka.bootstrap, transitions)
    ):
        other.enqueue(id="m")
        completed(other, 1)
        assert queue.counts()["pending"] == 1
        tw.create_queue("evil", update=True, sink=f"kafka://{topic}")
        completed(queue, 1)
    assert FORGED not in [record.value() for record in read_topic(kafka, transitions)]


def test_an_event_process_sends_only_to_the_topics_that_its_operator_permits(
    tw: Tickwheel,
    tickwheel_server: PrivateServer,
    kafka: Kafka,
    topic: str,
    driving: Driving,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    other_topic = make_topic(kafka)
    permitted, refused = (tw.create_queue(name, sink=f"kafka://{name}") for name in (topic, other_topic))
    refused.enqueue(id="m")
    permitted.enqueue(id="m")
    producers = KafkaProducers(kafka.bootstrap, make_topic(kafka))
    with run_event_process(
        *(tickwheel_server.url, tw._context.namespace, tmp_path / "lock", producers),
        sink_topics=("no-topic", f"{topic[:-1]}?"),
    ):
        completed(permitted, 1)
    assert refused.counts()["pending"] == 1
    assert f"messages of queue {other_topic} are not sent and stay Pending: no pattern of --sink-topics" in caplog.text
    with driving():
        completed(refused, 1)


def test_messages_for_missing_topics_hold_few_places(tw: Tickwheel, kafka: Kafka, topic: str, driving: Driving) -> None:
    missing = [tw.create_queue(f"missing-{n}", sink=f"kafka://{topic}-missing-{n}") for n in range(3)]
    for queue in missing:
        queue.enqueue_many(NewMessage(id=f"m{n}") for n in range(1_000))
    good = tw.create_queue("good", sink=f"kafka://{topic}")
    with driving() as process:
        eventually(lambda: [queue.counts()["running"] for queue in missing] == [1, 1, 1], "one of each is in flight")
        good.enqueue_many(NewMessage(id=f"m{n}") for n in range(2_000))
        # The messages of the missing topics are in flight meanwhile: they fail 30 s after they were sent.
        completed(good, 2_000)
        eventually(
            lambda: process.health()[0].sink_in_flight == len(missing), "only those of missing topics are in flight"
        )
    assert len(read_topic(kafka, topic)) == 2_000


@pytest.mark.parametrize(
    "stored", ["kafka://a\0b", "kafka://\ud800", "amqp://x", "kafka://", f"kafka://{events.TOPIC}"]
)
def test_a_stored_sink_that_is_invalid_stops_no_other_sink(
    tw: Tickwheel,
    server: Any,
    kafka: Kafka,
    topic: str,
    driving: Driving,
    caplog: pytest.LogCaptureFixture,
    stored: str,
) -> None:
    damaged, good = tw.create_queue("damaged"), tw.create_queue("good", sink=f"kafka://{topic}")
    damaged.enqueue(id="m")
    rows = queues_key(tw._context.namespace)
    row = server.hget(rows, "damaged")
    # Version, uid and number precede the settings.
    server.hset(rows, "damaged", row[:10] + json.dumps(json.loads(row[10:]) | {"sink": stored}).encode())
    with driving():
        for count in (1, 2):
            good.enqueue(id=f"m{count}")
            completed(good, count)
            # Another queue makes the event process read all sinks again.
            tw.create_queue(f"new-{count}", sink=f"kafka://{topic}")
    assert damaged.counts()["pending"] == 1
    lines = [record for record in caplog.records if "messages of queue damaged are not sent" in record.message]
    assert [(line.levelname, line.message.isprintable()) for line in lines] == [("WARNING", True)]


def test_a_message_whose_metadata_is_damaged_fails_and_stops_no_other_message(
    tw: Tickwheel, server: Any, kafka: Kafka, topic: str, driving: Driving
) -> None:
    once = timedelta(milliseconds=1)
    damaged, good = (
        tw.create_queue(name, sink=f"kafka://{topic}", indexed=[], max_attempts=2, backoff=once, backoff_max=once)
        for name in ("damaged", "good")
    )
    damaged.enqueue(id="m", metadata={"key": "value"}, deadline=timedelta(hours=-1))
    messages = shard_key(tw._context.namespace, 0, "messages")
    [field] = server.hkeys(messages)
    server.hset(messages, field, server.hget(messages, field).replace(b"value", b"\xff\xfe\xff\xfe\xff"))
    damaged.enqueue(id="undamaged")
    good.enqueue(id="m")
    with driving():
        completed(good, 1)
        completed(damaged, 1)
        eventually(lambda: damaged.counts()["errored"] == 1, "the damaged message fails")
    record = server.hget(messages, field)
    assert b"the sink rejected the message: the metadata of message 'm' of queue 'damaged' is damaged" in record
    server.hset(messages, field, record.replace(b"\xff\xfe\xff\xfe\xff", b"value"))


def test_the_log_has_one_warning_for_many_rejected_messages_of_a_queue(
    tw: Tickwheel, server: Any, topic: str, driving: Driving, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "tickwheel.sinks")
    queues = [tw.create_queue(name, sink=f"kafka://{topic}", indexed=[], max_attempts=1) for name in ("a", "b")]
    for queue in queues:
        queue.enqueue_many(NewMessage(id=f"m{n}", metadata={"key": "value"}) for n in range(3))
    messages = shard_key(tw._context.namespace, 0, "messages")
    stored = server.hgetall(messages)
    server.hset(messages, mapping={field: record.replace(b"value", b"\xff" * 5) for field, record in stored.items()})
    with driving():
        for queue in queues:
            eventually(lambda queue=queue: queue.counts()["errored"] == 3, "all messages fail")  # type: ignore[misc]
    for field, record in server.hgetall(messages).items():
        server.hset(messages, field, record.replace(b"\xff" * 5, b"value"))
    for queue in queues:
        of_queue = [line for line in caplog.records if f"of queue {queue.name}, so the attempt fails" in line.message]
        assert [line.levelname for line in of_queue] == ["WARNING", "DEBUG", "DEBUG"]


def test_a_queue_whose_messages_cannot_be_leased_stops_no_other_sink(
    tw: Tickwheel, server: Any, kafka: Kafka, topic: str, driving: Driving
) -> None:
    damaged, also_damaged, good = (
        tw.create_queue(name, sink=f"kafka://{topic}") for name in ("damaged", "also-damaged", "good")
    )
    rows = queues_key(tw._context.namespace)
    stored = server.hgetall(rows)
    for name in (b"damaged", b"also-damaged"):
        server.hset(
            rows, name, stored[name][:10] + json.dumps(json.loads(stored[name][10:]) | {"lease_ms": 1}).encode()
        )
    with driving():
        for queue in (damaged, also_damaged, good):
            queue.enqueue(id="m")
        completed(good, 1)
        assert (damaged.counts()["pending"], also_damaged.counts()["pending"]) == (1, 1)
        server.hset(rows, mapping=stored)
        completed(damaged, 1)
        completed(also_damaged, 1)


def test_an_event_process_without_a_broker_warns_once_about_queues_with_a_sink(
    tw: Tickwheel, tickwheel_server: PrivateServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tw.create_queue("q", sink="kafka://mail")
    for _ in range(2):
        with open_event_process(tickwheel_server.url, tw._context.namespace, tmp_path / "lock") as process:
            process._loops[0]._config.queues.lookup(77)
    lines = [record.getMessage() for record in caplog.records if "stay Pending" in record.getMessage()]
    assert len(lines) == 2
    assert "queue q has the sink kafka://mail" in lines[0]


def test_a_namespace_without_a_relay_forwards_its_messages(
    tickwheel_server: PrivateServer, namespace: str, kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    with Tickwheel(tickwheel_server.url, namespace=namespace) as tw:
        queue = tw.create_queue("q", sink=f"kafka://{topic}")
        queue.enqueue(b"due", id="due")
        with run_event_process(
            tickwheel_server.url, namespace, tmp_path / "lock", KafkaProducers(kafka.bootstrap), relays=False
        ):
            completed(queue, 1)
        [record] = read_topic(kafka, topic)
        assert record.value() == b"due"
