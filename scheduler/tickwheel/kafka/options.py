"""How a program reaches Kafka, and what it sends there."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tickwheel.kafka.library import TOPIC
from tickwheel.kafka.producer import KafkaProducers
from tickwheel.kafka.settings import read_kafka_settings
from tickwheel.model.served_topics import ALL_TOPICS, ServedTopics


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """The brokers, and how a program uses them.

    ``brokers`` are host:port, separated by commas. ``topic`` receives the transitions. ``settings`` are those of
    Kafka's client, as NAME=VALUE, and ``config`` is a file with such settings. ``sink_topics`` are shell patterns: only
    the sinks with these topics are served.
    """

    brokers: str
    topic: str = TOPIC
    # Tracebacks of other programs may print the options, and a setting can be a password.
    settings: tuple[str, ...] = field(default=(), repr=False)
    sink_topics: tuple[str, ...] = ALL_TOPICS
    config: Path | None = None

    @classmethod
    def make(
        cls,
        brokers: str,
        topic: str | None = None,
        settings: Sequence[str] | None = None,
        sink_topics: Sequence[str] | None = None,
        config: Path | None = None,
    ) -> Self:
        """Return the options, with defaults for those that are None."""
        topic = TOPIC if topic is None else topic
        return cls(brokers, topic, tuple(settings or ()), tuple(sink_topics or ALL_TOPICS), config)

    @property
    def served_topics(self) -> ServedTopics:
        """The topics whose sinks the program serves."""
        return ServedTopics(self.topic, self.sink_topics)

    def check(self) -> None:
        """Raise the errors of `producers`, before a child process needs the producers."""
        self.producers().close()

    def producers(self) -> KafkaProducers:
        """Return new producers for the brokers. This does not wait for a connection.

        Raises InvalidArgument for a value that Kafka's client refuses, and TickwheelError without its library.
        """
        return KafkaProducers(self.brokers, self.topic, read_kafka_settings(self.settings, self.config))

    def arguments(self) -> list[str]:
        """Return the options as arguments of `python -m tickwheel.event_process`."""
        return [
            f"--kafka={self.brokers}",
            f"--topic={self.topic}",
            *(f"--kafka-setting={text}" for text in self.settings),
            *(f"--sink-topics={text}" for text in self.sink_topics),
            *([] if self.config is None else [f"--kafka-config={self.config.absolute()}"]),
        ]
