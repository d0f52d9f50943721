"""Topics of Kafka for tests: made, and read as they are."""

import json
import os
import time
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from services.kafka import Kafka

_FIRST_S, _NEXT_S = 30.0, 1.0
_BATCH = 500


def make_topic(kafka: Kafka, partitions: int = 4, **settings: str) -> str:
    """A topic with a name of its own; settings as Kafka's, with `_` for `.`."""
    name = f"topic-{os.urandom(6).hex()}"
    config = {key.replace("_", "."): value for key, value in settings.items()}
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for made in admin.create_topics([NewTopic(name, partitions, 1, config=config)]).values():
        made.result(30)
    return name


def read_topic(kafka: Kafka, topic: str) -> list[Any]:
    """Every record of a topic, until no more come."""
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": os.urandom(6).hex(), "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    found: list[Any] = []
    # A call waits for so many records or so long.
    until = time.monotonic() + _FIRST_S
    try:
        while (batch := consumer.consume(_BATCH, _NEXT_S)) or not (found or time.monotonic() > until):
            found += batch
    finally:
        consumer.close()
    return found


def read_json(kafka: Kafka, topic: str) -> list[tuple[Any, Any]]:
    """Key and value of every record of a topic of JSON."""
    return [(json.loads(record.key()), json.loads(record.value())) for record in read_topic(kafka, topic)]
