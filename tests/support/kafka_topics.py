"""Creates and reads Kafka topics for tests."""

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
    """Create a topic with a unique name. ``settings`` are settings of Kafka, whose names have `_` instead of `.`."""
    name = f"topic-{os.urandom(6).hex()}"
    config = {key.replace("_", "."): value for key, value in settings.items()}
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for creation in admin.create_topics([NewTopic(name, partitions, 1, config=config)]).values():
        creation.result(30)
    return name


def read_topic(kafka: Kafka, topic: str) -> list[Any]:
    """Return every record of a topic. Stop when no more records arrive."""
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": os.urandom(6).hex(), "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    records: list[Any] = []
    # Wait for the first records, since a new consumer needs time to join its group.
    until = time.monotonic() + _FIRST_S
    try:
        while (batch := consumer.consume(_BATCH, _NEXT_S)) or not (records or time.monotonic() > until):
            records += batch
    finally:
        consumer.close()
    return records


def read_json(kafka: Kafka, topic: str) -> list[tuple[Any, Any]]:
    """Return the decoded key and value of every record of a topic."""
    return [(json.loads(record.key()), json.loads(record.value())) for record in read_topic(kafka, topic)]
