"""The relay of a run: event processes publish the history to a topic of Kafka, from which the checker reads it."""

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
    """A separate topic for a run on ``kafka``."""

    def __init__(self, kafka: Kafka) -> None:
        self.kafka = kafka
        self.topic = f"faults-{os.urandom(6).hex()}"
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        for future in admin.create_topics([NewTopic(self.topic, _PARTITIONS, 1)]).values():
            future.result(_ANSWER_S)

    def arguments(self) -> list[str]:
        """Return the options of `tickwheel events`."""
        return ["--kafka", self.kafka.bootstrap, "--topic", self.topic]

    def records(self) -> int:
        """Return the number of records in the topic."""
        consumer = Consumer({"bootstrap.servers": self.kafka.bootstrap, "group.id": self.topic, "log_level": 0})
        try:
            partitions = [TopicPartition(self.topic, n) for n in range(_PARTITIONS)]
            return sum(consumer.get_watermark_offsets(partition, timeout=_ANSWER_S)[1] for partition in partitions)
        finally:
            consumer.close()

    def read(self, queues: dict[int, str]) -> list[OutboxTransition]:
        """Return all relayed transitions without duplicates. The transitions of one message are in order."""
        numbers = {name: number for number, name in queues.items()}
        unreadable: list[events.UnreadableRecord] = []
        transitions = events.read(self.kafka.bootstrap, topic=self.topic, idle=_IDLE, on_unreadable=unreadable.append)
        history = [_transition(numbers[event.queue], event) for event in transitions]
        assert unreadable == []
        return history


def _transition(queue_number: int, event: events.Transition) -> OutboxTransition:
    before, after = (None if label is None else State[label.upper()] for label in (event.from_state, event.to_state))
    due_ms = _ms(event.due)
    # The topic does not contain the end of a back-off, so nothing is checked for it.
    return OutboxTransition(
        queue_number, event.id, event.exclusive_value, event.incarnation, event.version, before, after,
        _ms(event.time) or 0, due_ms or 0, event.attempt, event.worker or "",
        None if event.lateness is None else event.lateness // timedelta(milliseconds=1), due_ms, _ms(event.deadline),
        event.metadata,
    )  # fmt: skip


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)
