"""The Kafka producers of an event process, which the loops of all its shards share: the relay's, and the sinks'.

They wait an outage out, however long. On the relay's a record that fails for good fails all that follow it, so that no
gap is ever filled later: then its user gives the producer up, and begins again with another.
"""

import logging
from collections.abc import Mapping
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any, Final

from tickwheel.errors import InvalidArgument
from tickwheel.kafka.library import TOPIC, build_settings, kafka_library, library_log
from tickwheel.model.sink_url import TOPIC_NAMES, is_topic

_POLL_S: Final = 0.2
_TOPIC_CHECK_S: Final = 5.0
# What is purged is reported within milliseconds.
_PURGE_TIMEOUT_S: Final = 1.0
_SETTINGS: Final = {
    "enable.idempotence": "true",
    "acks": "all",
    # None: as long as it takes.
    "message.timeout.ms": "0",
    "linger.ms": "5",
    "compression.type": "lz4",
    "queue.buffering.max.messages": "200000",
    "queue.buffering.max.kbytes": "65536",
    # As Java's producers choose partitions, so that others may write and read by the same key.
    "partitioner": "murmur2_random",
    "log.connection.close": "false",
    # Errors: its warnings are about settings, this one's choice of them too.
    "log_level": "3",
}

# Not to be set by a user: what the broker has not acknowledged must not be cut from the outbox.
_FIXED: Final = ("enable.idempotence", "enable.gapless.guarantee", "acks", "max.in.flight.requests.per.connection")
_GAPLESS: Final = {"enable.gapless.guarantee": "true"}
# A topic's limit is for a batch, which is refused as a whole: a record that is too large is to be alone in its batch.
_SMALL_BATCHES: Final = {"batch.size": "65536"}


class KafkaProducers:
    """Where records go. Connects when it is first used; that nobody answers is no error, and is waited out."""

    def __init__(
        self, bootstrap: str, topic: str = TOPIC, overrides: Mapping[str, str] | None = None, *, gapless: bool = True
    ) -> None:
        """``given`` are librdkafka's settings, for TLS and passwords mostly. Raises InvalidArgument for wrong ones, and
        for a topic that no broker can have.
        """
        if not is_topic(topic):
            raise InvalidArgument(f"a topic's name is {TOPIC_NAMES}, not {topic!r:.80}")
        for name in overrides or ():
            if name in _FIXED:
                raise InvalidArgument(f"Kafka's setting {name!r} is fixed: records are acknowledged, in order, once")
        self.topic = topic
        self._kafka = kafka_library()
        self.errors: type[Exception] = self._kafka.KafkaException
        self._settings = (
            _SETTINGS | (_GAPLESS if gapless else _SMALL_BATCHES) | build_settings(bootstrap, overrides or {})
        )
        self._init_args = (bootstrap, topic, overrides)
        self._sink_producers: KafkaProducers | None = None
        self._lock = Lock()
        self._producer: PolledProducer | None = None
        # Nothing is connected by this; a setting that does not exist is found.
        self.producer()

    def producer(self) -> "PolledProducer":
        """The producer of now."""
        with self._lock:
            if self._producer is None:
                logger = MutableLogger()
                try:
                    client = self._kafka.Producer(self._settings, logger=logger)
                except self._kafka.KafkaException as error:
                    raise InvalidArgument(f"Kafka's client refuses its settings: {error.args[0].str()}") from error
                self._producer = PolledProducer(client, logger)
            return self._producer

    def check_topic(self) -> None:
        """Say it where the topic is not there, or no broker answers: events wait in their outboxes then. In seconds."""
        producer = self.producer()
        until = monotonic() + _TOPIC_CHECK_S
        try:
            # Where brokers make topics by themselves, they do it now.
            while (error := producer.list_topics(self.topic, _TOPIC_CHECK_S).topics[self.topic].error) is not None:
                if monotonic() >= until or producer.wait_closed(_TOPIC_CHECK_S / 10):
                    library_log.error("topic %s: %s; events wait in their outboxes", self.topic, error.str())
                    return
        except self.errors as failure:
            library_log.error("no broker tells of topic %s: %s; events wait", self.topic, failure.args[0].str())

    def discard(self, producer: "PolledProducer") -> None:
        """This producer has failed: the next caller of `producer` gets another."""
        with self._lock:
            if self._producer is producer:
                self._producer = None
        producer.close()

    def sink_producers(self) -> "KafkaProducers":
        """The same brokers by another producer, where a record that is refused fails none but itself.

        It is closed with this one.
        """
        if self._sink_producers is None:
            self._sink_producers = KafkaProducers(*self._init_args, gapless=False)
        return self._sink_producers

    def close(self) -> None:
        if self._sink_producers is not None:
            self._sink_producers.close()
        with self._lock:
            producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()


class MutableLogger:
    """The log of a producer, which calls it fatal that its own user has purged what it was to send."""

    def __init__(self) -> None:
        self.is_muted = False

    def log(self, level: int, text: str, *args: object) -> None:
        """As a logger does, until it is closed."""
        if not self.is_muted:
            library_log.log(level, text, *args)


class PolledProducer:
    """A producer whose reports are called from a thread of its own, and from that one alone."""

    def __init__(self, producer: Any, logger: MutableLogger) -> None:
        self._producer = producer
        self._logger = logger
        self._closing = Event()
        self.produce = producer.produce
        self.list_topics = producer.list_topics
        self._thread = Thread(target=self._poll, name="tickwheel-kafka", daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        """Whether it was given up, maybe by another shard's loop: it takes nothing more."""
        return self._closing.is_set()

    def wait_closed(self, seconds: float) -> bool:
        """Wait so long, or until it is closed; whether it is."""
        return self._closing.wait(seconds)

    def close(self) -> None:
        """End it at once, and report so of each record that is not sent or not acknowledged. Twice is fine."""
        if not self._closing.is_set():
            self._closing.set()
            self._thread.join()
            self._logger.is_muted = True
            self._producer.purge()
            # Not by `flush`, which has been seen to hang in the client library where the reports call back.
            until = monotonic() + _PURGE_TIMEOUT_S
            while len(self._producer) and monotonic() < until:
                self._report(_PURGE_TIMEOUT_S / 20)

    def _poll(self) -> None:
        while not self._closing.is_set():
            self._report(_POLL_S)

    def _report(self, seconds: float) -> None:
        """Let the reports that have come be called, after waiting for one at most so long."""
        try:
            self._producer.poll(seconds)
        except Exception as error:
            # It fails once for a fatal error; the records that it fails are reported by the calls to come.
            self._logger.log(logging.WARNING, "the client of Kafka has failed: %s", error)
