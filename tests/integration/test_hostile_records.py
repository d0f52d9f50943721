"""Kafka records that are no transitions: the reader raises an error, and its group can continue after them."""

import os

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from services.kafka import Kafka
from tests.support.kafka_topics import make_topic
from tickwheel import TickwheelError, events
from tickwheel.events.encoding import encode
from tickwheel.storage.record import State
from tickwheel.storage.transition import OutboxTransition

pytestmark = pytest.mark.integration

[(KEY, GOOD)] = encode("tw", "q", [OutboxTransition(1, "m", None, 1, 1, None, State.PENDING, 0, 0, 0)])
AFTER = GOOD.replace(b'"id":"m"', b'"id":"after"')
HOSTILE: dict[str, bytes | None] = {
    "tombstone": None,
    "empty": b"",
    "not JSON": b"hello",
    "not UTF-8": b"\xff\xfe\xfd",
    "deep nesting": b"[" * 100_000,
    "deep object": b'{"schema_version":' * 30_000,
    "an array": b"[1]",
    "a number": b"1",
    "another schema": GOOD.replace(b'"schema_version":1', b'"schema_version":2'),
    "huge version": GOOD.replace(b'"schema_version":1', b'"schema_version":' + b"9" * 5_000),
    "huge lateness": GOOD.replace(b'"lateness":null', b'"lateness":' + b"9" * 40),
    "too many digits": GOOD.replace(b'"time":0', b'"time":' + b"9" * 5_000),
    "infinite time": GOOD.replace(b'"time":0', b'"time":Infinity'),
    "time is true": GOOD.replace(b'"time":0', b'"time":true'),
    "id is a list": GOOD.replace(b'"id":"m"', b'"id":[]'),
    "id is no text": GOOD.replace(b'"id":"m"', b'"id":"\\ud800"'),
    "no queue": GOOD.replace(b'"queue"', b'"other"'),
}


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_record_that_is_no_transition_raises_an_error_and_can_be_skipped(kafka: Kafka, hostile: str) -> None:
    topic, group = make_topic(kafka, 1), os.urandom(6).hex()
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for value in (GOOD, HOSTILE[hostile], AFTER):
        producer.produce(topic, value, KEY)
    assert producer.flush(30) == 0
    reader = events.read(kafka.bootstrap, topic=topic, group=group)
    assert next(reader).id == "m"
    with pytest.raises(TickwheelError, match="not a transition of Tickwheel"):
        next(reader)
    # An operator skips the record: the group continues after it.
    operator = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    operator.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
    operator.close()
    assert next(events.read(kafka.bootstrap, topic=topic, group=group)).id == "after"
