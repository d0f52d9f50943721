"""The history's way out: event processes that relay it to a topic of Kafka, which is then what is known of it."""

import os
from datetime import datetime, timedelta

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from services.kafka import Kafka
from tickwheel import events
from tickwheel.storage.record import State
from tickwheel.storage.transition import OutboxTransition

_PARTITIONS, _ANSWER_S = 4, 30.0
_IDLE = timedelta(seconds=3)


class Relay:
    """A topic of a run's own on ``kafka``."""

    def __init__(self, kafka: Kafka) -> None:
        self.kafka = kafka
        self.topic = f"faults-{os.urandom(6).hex()}"
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        for made in admin.create_topics([NewTopic(self.topic, _PARTITIONS, 1)]).values():
            made.result(_ANSWER_S)

    def arguments(self) -> list[str]:
        """The options of `tickwheel events`."""
        return ["--kafka", self.kafka.bootstrap, "--topic", self.topic]

    def records(self) -> int:
        """How many records the topic has."""
        consumer = Consumer({"bootstrap.servers": self.kafka.bootstrap, "group.id": self.topic, "log_level": 0})
        try:
            partitions = [TopicPartition(self.topic, n) for n in range(_PARTITIONS)]
            return sum(consumer.get_watermark_offsets(each, timeout=_ANSWER_S)[1] for each in partitions)
        finally:
            consumer.close()

    def read(self, queues: dict[int, str]) -> list[OutboxTransition]:
        """All that was relayed, as a consumer sees it: each once, of each message in order, and not across messages."""
        numbers = {name: number for number, name in queues.items()}
        told = events.read(self.kafka.bootstrap, topic=self.topic, idle=_IDLE)
        return [_transition(numbers[one.queue], one) for one in told]


def _transition(queue_number: int, one: events.Transition) -> OutboxTransition:
    before, after = (None if label is None else State[label.upper()] for label in (one.from_state, one.to_state))
    due_ms = _ms(one.due)
    # When a message that failed is due again is not told in the topic: nothing is claimed of it.
    return OutboxTransition(
        queue_number, one.id, one.exclusive_value, one.incarnation, one.version, before, after,
        _ms(one.time) or 0, due_ms or 0, one.attempt, one.worker or "",
        None if one.lateness is None else one.lateness // timedelta(milliseconds=1), due_ms, _ms(one.deadline),
        one.metadata,
    )  # fmt: skip


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)
