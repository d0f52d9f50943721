"""The one Kafka producer of an event process, which the loops of all its shards share.

It waits an outage out, however long. A record that fails for good fails all that follow it, so that no gap is ever
filled later: then its user gives the producer up, and begins again with another.
"""

import logging
from collections.abc import Mapping
from threading import Event, Lock, Thread
from typing import Any, Final

from tickwheel.errors import InvalidArgument
from tickwheel.events.kafka import TOPIC, kafka_library, settings

_POLL_S: Final = 0.2
_SETTINGS: Final = {
    "enable.idempotence": "true",
    "enable.gapless.guarantee": "true",
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

_log = logging.getLogger("tickwheel.kafka")


class Broker:
    """Where records go. Connects when it is first used; that nobody answers is no error, and is waited out."""

    def __init__(self, bootstrap: str, topic: str = TOPIC, given: Mapping[str, str] | None = None) -> None:
        """``given`` are librdkafka's settings, for TLS and passwords mostly. Raises InvalidArgument for wrong ones."""
        self.topic = topic
        self._kafka = kafka_library()
        self.errors: type[Exception] = self._kafka.KafkaException
        self._settings = _SETTINGS | settings(bootstrap, given or {})
        self._lock = Lock()
        self._producer: Polled | None = None
        self._is_closed = False
        # Nothing is connected by this; a setting that does not exist is found.
        self.producer()

    def producer(self) -> "Polled":
        """The producer of now."""
        with self._lock:
            if self._producer is None:
                try:
                    made = self._kafka.Producer(self._settings, logger=_log)
                except self._kafka.KafkaException as error:
                    raise InvalidArgument(f"Kafka's client refuses its settings: {error.args[0].str()}") from error
                self._producer = Polled(made)
            return self._producer

    def give_up(self, producer: "Polled") -> None:
        """This producer has failed: the next caller of `producer` gets another."""
        with self._lock:
            if self._producer is producer:
                self._producer = None
        producer.close()

    def close(self) -> None:
        with self._lock:
            producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()


class Polled:
    """A producer whose reports are called from a thread of its own, and from that one alone."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self._closing = Event()
        self.produce = producer.produce
        self._thread = Thread(target=self._poll, name="tickwheel-kafka", daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        """Whether it was given up, maybe by another shard's loop: nothing more is reported of what it was given."""
        return self._closing.is_set()

    def close(self) -> None:
        """End it at once: what is not sent is dropped, and what is not acknowledged is not known. Twice is fine."""
        if not self._closing.is_set():
            self._closing.set()
            self._thread.join()
            self._producer.purge()
            self._producer.poll(0)

    def _poll(self) -> None:
        while not self._closing.is_set():
            self._producer.poll(_POLL_S)
