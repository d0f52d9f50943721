"""Kafka records that are no transitions of the relay: the reader logs, reports and skips them."""

import logging
import os
from datetime import timedelta

import pytest
from confluent_kafka import Producer

from services.kafka import Kafka
from tests.frozen.kafka import sink_record
from tests.support.kafka_topics import make_topic
from tests.support.raw_kafka_producer import write_with_header
from tickwheel import events
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


@pytest.fixture
def topic(kafka: Kafka) -> str:
    return make_topic(kafka, 1)


@pytest.fixture
def group() -> str:
    return os.urandom(6).hex()


def write(kafka: Kafka, topic: str, *values: bytes | None) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for value in values:
        producer.produce(topic, value, KEY)
    assert producer.flush(30) == 0


def test_records_that_are_no_transitions_are_logged_reported_and_skipped(
    kafka: Kafka, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(kafka, topic, GOOD, *HOSTILE.values(), AFTER)
    skipped: list[events.UnreadableRecord] = []
    with caplog.at_level(logging.DEBUG, "tickwheel.events"):
        transitions = list(
            events.read(kafka.bootstrap, topic=topic, idle=timedelta(seconds=3), on_unreadable=skipped.append)
        )
    assert [one.id for one in transitions] == ["m", "after"]
    # An empty value and a tombstone are different records.
    assert [(one.topic, one.partition, one.offset, one.value) for one in skipped] == [
        (topic, 0, 1 + number, value) for number, value in enumerate(HOSTILE.values())
    ]
    assert all("not a transition of Tickwheel" in one.reason for one in skipped)
    lines = [record for record in caplog.records if f"of partition 0 of topic {topic} is skipped" in record.message]
    assert [record.message.split()[1] for record in lines] == [str(1 + number) for number in range(len(HOSTILE))]
    assert [record.levelname for record in lines] == ["WARNING", *["DEBUG"] * (len(HOSTILE) - 1)]
    # The text of the record cannot add a line to the log, even without the log format of the programs.
    assert all(record.message.isprintable() for record in lines)


def test_the_payload_of_a_message_in_the_topic_of_transitions_is_not_taken_for_a_transition(
    kafka: Kafka, topic: str
) -> None:
    # The payload has the key of a message of another namespace, and pretends to be newer than all its transitions.
    forged = GOOD.replace(b'"version":1', b'"version":4294967295')
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, forged, KEY, headers=[*sink_record()[1]])
    producer.produce(topic, GOOD, KEY, headers=[("traceparent", b"of a mirror")])
    assert producer.flush(30) == 0
    skipped: list[events.UnreadableRecord] = []
    read = events.read(kafka.bootstrap, topic=topic, idle=timedelta(seconds=3), on_unreadable=skipped.append)
    assert [transition.version for transition in read] == [1]
    assert [(one.offset, one.value, "a sink has written" in one.reason) for one in skipped] == [(0, forged, True)]


def test_a_record_with_a_header_whose_name_is_not_utf8_is_skipped(kafka: Kafka, topic: str) -> None:
    # Python optimizes calls that are repeated.
    write(kafka, topic, *[GOOD] * 100)
    write_with_header(kafka.bootstrap, topic, GOOD, b"\xff\xfe")
    write(kafka, topic, AFTER)
    skipped: list[events.UnreadableRecord] = []
    read = events.read(kafka.bootstrap, topic=topic, idle=timedelta(seconds=3), on_unreadable=skipped.append)
    assert [transition.id for transition in read] == ["m", "after"]
    assert [(one.offset, one.value, "header is not UTF-8" in one.reason) for one in skipped] == [(100, GOOD, True)]


def test_a_group_continues_after_a_record_that_is_no_transition(kafka: Kafka, topic: str, group: str) -> None:
    write(kafka, topic, HOSTILE["not JSON"], GOOD)
    assert next(events.read(kafka.bootstrap, topic=topic, group=group)).id == "m"
    # The first reader had not requested the transition after "m", so only the record before "m" counts as read.
    skipped: list[events.UnreadableRecord] = []
    again = events.read(kafka.bootstrap, topic=topic, group=group, on_unreadable=skipped.append)
    assert next(again).id == "m"
    assert skipped == []


def test_a_record_at_which_the_caller_stops_is_the_first_of_the_next_reader(
    kafka: Kafka, topic: str, group: str
) -> None:
    def stop(record: events.UnreadableRecord) -> None:
        raise LookupError(f"offset {record.offset}")

    write(kafka, topic, GOOD, HOSTILE["an array"], AFTER)
    for expected in (["m"], []):
        read: list[str] = []
        with pytest.raises(LookupError, match="offset 1"):
            read += (one.id for one in events.read(kafka.bootstrap, topic=topic, group=group, on_unreadable=stop))
        # `+=` keeps what was read before the error.
        assert read == expected
