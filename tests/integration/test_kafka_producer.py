"""The producer that all shards of an event process share."""

import logging
import os

import pytest

from services.kafka import Kafka
from services.process import free_port
from tests.support.kafka_topics import make_topic, read_topic
from tests.support.wait_until import eventually
from tickwheel import InvalidArgument
from tickwheel.kafka.producer import KafkaProducers

pytestmark = pytest.mark.integration


def test_a_shared_producer_is_closed_for_all_users_and_replaced_by_the_next(kafka: Kafka) -> None:
    topic = make_topic(kafka)
    broker = KafkaProducers(kafka.bootstrap, topic)
    first = broker.producer()
    assert broker.producer() is first
    broker.discard(first)
    second = broker.producer()
    assert (first.is_closed, second.is_closed) == (True, False)
    # Discarding a replaced producer again has no effect.
    broker.discard(first)
    assert broker.producer() is second
    acknowledged: list[object] = []
    second.produce(topic, b"value", b"key", on_delivery=lambda error, _: acknowledged.append(error))
    eventually(lambda: acknowledged == [None], "the broker acknowledges the record")
    broker.close()
    assert [record.value() for record in read_topic(kafka, topic)] == [b"value"]


def test_an_unknown_setting_of_kafkas_client_is_named() -> None:
    with pytest.raises(InvalidArgument, match=r"no\.such\.setting"):
        KafkaProducers("localhost:9092", overrides={"no.such.setting": "1"})


def test_an_unreachable_broker_is_logged_once_and_not_at_each_attempt(caplog: pytest.LogCaptureFixture) -> None:
    broker = KafkaProducers(f"127.0.0.1:{free_port()}")
    attempts: list[logging.LogRecord] = []

    def count(record: logging.LogRecord) -> bool:
        attempts.append(record)
        return True

    # The filter runs before the logger's own filter and receives every record.
    logger = logging.getLogger("tickwheel.kafka")
    logger.filters.insert(0, count)
    try:
        eventually(lambda: len(attempts) >= 3, "the producer has made three attempts")
    finally:
        logger.removeFilter(count)
        broker.close()
    assert sum("Connection refused" in record.getMessage() for record in caplog.records) == 1


def test_messages_purged_by_our_own_close_are_not_reported_as_fatal(
    kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    broker = KafkaProducers(kafka.bootstrap, make_topic(kafka))
    producer = broker.producer()
    answers: list[object] = []
    producer.produce(broker.topic, b"first", on_delivery=lambda error, _: answers.append(error))
    eventually(lambda: answers == [None], "the broker acknowledges the first")
    with kafka.paused():
        producer.produce(broker.topic, b"second", on_delivery=lambda error, _: answers.append(error))
        broker.close()
    assert len(answers) == 2
    assert "FATAL" not in caplog.text


@pytest.mark.parametrize(
    ("setting", "value"),
    [("acks", "1"), ("max.in.flight.requests.per.connection", "6"), ("enable.idempotence", "false")],
)
def test_a_setting_that_would_weaken_acknowledgements_is_refused(setting: str, value: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{setting}.* cannot be changed"):
        KafkaProducers("localhost:9092", overrides={setting: value})


@pytest.mark.parametrize("topic", ["", "a b", "a/b", ".", "x" * 250])
def test_an_invalid_topic_name_is_refused(topic: str) -> None:
    with pytest.raises(InvalidArgument, match="a topic's name must have 1 to 249 letters"):
        KafkaProducers("localhost:9092", topic)


def test_a_missing_topic_is_reported_before_anything_is_published(
    kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"no.such.{os.urandom(6).hex()}"
    for topic in (make_topic(kafka), name):
        broker = KafkaProducers(kafka.bootstrap, topic)
        broker.check_topic()
        broker.close()
    [line] = [record.getMessage() for record in caplog.records if record.name == "tickwheel.kafka"]
    assert line.startswith(f"topic {name}: ")
