"""The Kafka producers of an event process, shared by all its shards: one for the relays, and one for the sinks.

Both wait for an outage to end, without a limit. If a record of the relays fails permanently, all records after it fail,
too, so the topic never has a record without the records before it. The relay then discards the producer and starts
again with a new producer.
"""

import logging
from collections.abc import Mapping
from contextlib import suppress
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any, Final

from tickwheel.errors import InvalidArgument
from tickwheel.kafka.library import TOPIC, build_settings, kafka_library, library_log
from tickwheel.model.sink_url import TOPIC_NAMES, is_topic
from tickwheel.model.validation import preview

_POLL_S: Final = 0.2
_TOPIC_CHECK_S: Final = 5.0
# Time limit for the reports of purged records, which arrive within milliseconds.
_PURGE_TIMEOUT_S: Final = 1.0
_SETTINGS: Final = {
    "enable.idempotence": "true",
    "acks": "all",
    # No time limit.
    "message.timeout.ms": "0",
    "linger.ms": "5",
    "compression.type": "lz4",
    "queue.buffering.max.messages": "200000",
    "queue.buffering.max.kbytes": "65536",
    # The partitioner of Java's producers, so other programs find the same partition for a key.
    "partitioner": "murmur2_random",
    "log.connection.close": "false",
    # Errors only: the library's warnings are about settings, including those chosen here.
    "log_level": "3",
}

# Settings that a user cannot change. With other values, events could be lost or reordered.
_FIXED: Final = ("enable.idempotence", "enable.gapless.guarantee", "acks", "max.in.flight.requests.per.connection")
_GAPLESS: Final = {"enable.gapless.guarantee": "true"}
# A topic's size limit applies to a batch, which is rejected as a whole. With small batches, a record that is too large
# is alone in its batch.
_SMALL_BATCHES: Final = {"batch.size": "65536"}


class KafkaProducers:
    """Creates one producer, which the shards of an event process share. If a producer fails, creates another."""

    def __init__(
        self, bootstrap: str, topic: str = TOPIC, overrides: Mapping[str, str] | None = None, *, gapless: bool = True
    ) -> None:
        """``overrides`` are librdkafka's settings, mainly for TLS and passwords. With ``gapless``, all records after a
        failed record fail. Raises InvalidArgument for invalid settings and for an invalid name of a topic.
        """
        if not is_topic(topic):
            raise InvalidArgument(f"a topic's name must have {TOPIC_NAMES}, not {preview(topic)}")
        for name in overrides or ():
            if name in _FIXED:
                raise InvalidArgument(
                    f"Kafka's setting {name!r} cannot be changed: it keeps records from being lost or reordered"
                )
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
        # Create a producer now to detect invalid settings. This does not wait for a connection.
        self.producer()

    def producer(self) -> "PolledProducer":
        """Return the current producer; create one if there is none."""
        with self._lock:
            if self._producer is None:
                logger = MutableLogger()
                try:
                    client = self._kafka.Producer(self._settings, logger=logger)
                except self._kafka.KafkaException as error:
                    raise InvalidArgument(f"Kafka's client rejects its settings: {error.args[0].str()}") from error
                self._producer = PolledProducer(client, logger)
            return self._producer

    def buffer_bytes(self, record_bytes: int) -> int:
        """Return how many bytes of records the buffer of a producer can hold, if each has at least ``record_bytes``."""
        size = self._number("queue.buffering.max.kbytes") * 1024
        # 0 means no limit.
        records = self._number("queue.buffering.max.messages")
        return min(size, records * record_bytes) if records else size

    def _number(self, setting: str) -> int:
        """Return the number in a setting, or the default if it has a form that only the library reads."""
        text = str(self._settings[setting])
        with suppress(ValueError):
            # A leading zero means octal.
            return int(text, 8 if text.isdecimal() and text.startswith("0") else 0)
        return int(_SETTINGS[setting])

    def check_topic(self) -> None:
        """Log an error if the topic does not exist or no broker answers. May take some seconds."""
        producer = self.producer()
        until = monotonic() + _TOPIC_CHECK_S
        try:
            # Brokers that create topics automatically do so now.
            while (error := producer.list_topics(self.topic, _TOPIC_CHECK_S).topics[self.topic].error) is not None:
                if monotonic() >= until or producer.wait_closed(_TOPIC_CHECK_S / 10):
                    library_log.error("topic %s: %s; events wait in their outboxes", self.topic, error.str())
                    return
        except self.errors as failure:
            library_log.error(
                "topic %s: no broker answers: %s; events wait in their outboxes", self.topic, failure.args[0].str()
            )

    def discard(self, producer: "PolledProducer", error: Any = None) -> None:
        """Close a failed producer. The next call of `producer` creates another.

        ``error`` is why the broker rejected a record. If a batch was too large for the topic, later batches are small.
        """
        with self._lock:
            if error is not None and error.code() == self._kafka.KafkaError.MSG_SIZE_TOO_LARGE:
                # A batch size that the user has set is kept.
                self._settings = _SMALL_BATCHES | self._settings
            if self._producer is producer:
                self._producer = None
        producer.close()

    def sink_producers(self) -> "KafkaProducers":
        """Return producers for the sinks, with the same brokers. `close` closes them, too.

        If the broker rejects a record of these producers, only this record fails.
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
    """The log of a producer. `close` mutes it, because the library logs the purge of records as a fatal error."""

    def __init__(self) -> None:
        self.is_muted = False

    def log(self, level: int, text: str, *args: object) -> None:
        """Log a line unless muted."""
        if not self.is_muted:
            library_log.log(level, text, *args)


class PolledProducer:
    """A producer with a thread of its own, which runs all delivery callbacks."""

    def __init__(self, producer: Any, logger: MutableLogger) -> None:
        self._producer = producer
        self._logger = logger
        self._closing = Event()
        # Held while a record is produced, and while `close` begins.
        self._lock = Lock()
        self.list_topics = producer.list_topics
        self._thread = Thread(target=self._poll, name="tickwheel-kafka", daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        """Whether the producer was closed, maybe by the loop of another shard. A closed producer accepts no records."""
        return self._closing.is_set()

    def produce(self, *args: Any, **options: Any) -> bool:
        """Give a record to the client library, with the arguments of its `produce`. Return False if this is closed.

        Raises the errors of the library, among them BufferError if its queue is full.
        """
        # Invariant: `close` purges after the last record, so each record gets an answer.
        with self._lock:
            if self._closing.is_set():
                return False
            self._producer.produce(*args, **options)
            return True

    def wait_closed(self, seconds: float) -> bool:
        """Wait until the producer is closed, for at most ``seconds``. Return whether it is closed."""
        return self._closing.wait(seconds)

    def close(self) -> None:
        """Close immediately, and report an error for each record without an acknowledgement. Idempotent."""
        with self._lock:
            if self._closing.is_set():
                return
            self._closing.set()
        self._thread.join()
        self._logger.is_muted = True
        self._producer.purge()
        # Do not call `flush`: it has hung in the client library while delivery callbacks called the library.
        until = monotonic() + _PURGE_TIMEOUT_S
        while len(self._producer) and monotonic() < until:
            self._report(_PURGE_TIMEOUT_S / 20)

    def _poll(self) -> None:
        while not self._closing.is_set():
            self._report(_POLL_S)

    def _report(self, seconds: float) -> None:
        """Run the delivery callbacks that are ready. If none is ready, wait for at most ``seconds``."""
        try:
            self._producer.poll(seconds)
        except Exception as error:
            # After a fatal error `poll` raises once. Later calls report the records that failed with it.
            self._logger.log(logging.WARNING, "Kafka's client has failed: %s", error)
