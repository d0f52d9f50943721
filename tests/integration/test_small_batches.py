"""A topic of transitions that permits only small batches gets every event, also after a backlog."""

import os
from pathlib import Path

import pytest

from services.kafka import Kafka
from tests.support.event_process_thread import run_event_process
from tests.support.kafka_topics import make_topic, read_json
from tests.support.wait_until import eventually
from tickwheel import NewMessage, Tickwheel
from tickwheel.kafka.producer import KafkaProducers
from tickwheel.storage.keys import shard_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

COUNT = 4_000


def test_a_backlog_is_relayed_to_a_topic_with_a_small_limit_for_batches(
    tickwheel_server: PrivateServer, namespace: str, kafka: Kafka, tmp_path: Path
) -> None:
    topic = make_topic(kafka, 1, max_message_bytes="65536")
    with (
        Tickwheel(tickwheel_server.url, namespace=namespace, history="relay", drive=False) as client,
        tickwheel_server.client() as redis,
    ):
        # Random metadata, so that the compressed batch is large, too.
        ids = [f"m{n}" for n in range(COUNT)]
        client.queue("q").enqueue_many(NewMessage(id=id_, metadata={"k": os.urandom(60).hex()}) for id_ in ids)
        with run_event_process(
            tickwheel_server.url, namespace, tmp_path / "lock", KafkaProducers(kafka.bootstrap, topic)
        ):
            eventually(lambda: redis.xlen(shard_key(namespace, 0, "events")) == 0, "all events are relayed", 60)
    # The batches that the topic has accepted before the first one was rejected are published again.
    assert list(dict.fromkeys(value["id"] for _, value in read_json(kafka, topic))) == ids
