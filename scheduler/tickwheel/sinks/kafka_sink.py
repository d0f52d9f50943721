"""The sink of a Kafka topic: one record for each message. The key is the exclusive value or, without one, the id."""

from functools import partial
from typing import Any

from tickwheel.errors import DataLoss
from tickwheel.kafka.library import SINK_HEADERS, kafka_library
from tickwheel.kafka.producer import KafkaProducers
from tickwheel.sinks.sink import DeliveryCallback, DeliveryStatus, SinkMessage
from tickwheel.storage import trace_context


class KafkaSink:
    """Sends messages to one topic."""

    def __init__(self, producers: KafkaProducers, namespace: str, topic: str) -> None:
        """``producers`` must come from `KafkaProducers.sink_producers`: such producers survive a rejected record."""
        self._producers = producers
        self._namespace = namespace
        self._topic = topic
        error = kafka_library().KafkaError
        # Errors after which the broker may or may not have the record: the producer failed as a whole, or was closed.
        self._unknown_codes = frozenset({error._FATAL, error._PURGE_QUEUE, error._PURGE_INFLIGHT})

    def send(self, message: SinkMessage, on_delivery: DeliveryCallback) -> bool:
        try:
            record_headers = headers(self._namespace, message)
        except DataLoss as error:
            on_delivery(DeliveryStatus.REFUSED, str(error))
            return True
        producer = self._producers.producer()
        try:
            # False if another shard has closed the producer, and perhaps purged it: this message is sent again by the
            # next producer.
            return producer.produce(
                self._topic,
                message.payload,
                key(message),
                headers=record_headers,
                on_delivery=partial(self._report, on_delivery),
            )
        except BufferError:
            return False
        except self._producers.errors as error:
            if error.args[0].code() in self._unknown_codes:
                self._producers.discard(producer)
            self._report(on_delivery, error.args[0], None)
        return True

    def _report(self, on_delivery: DeliveryCallback, error: Any, _: Any) -> None:
        if error is None:
            on_delivery(DeliveryStatus.ACKNOWLEDGED, "")
        elif error.code() in self._unknown_codes:
            on_delivery(DeliveryStatus.UNKNOWN, "")
        else:
            on_delivery(DeliveryStatus.REFUSED, error.str())


def key(message: SinkMessage) -> bytes:
    """Return the record's key, which selects the partition: messages of one exclusive value stay in order."""
    return (message.id if message.exclusive_value is None else message.exclusive_value).encode()


def headers(namespace: str, message: SinkMessage) -> list[tuple[str, bytes]]:
    """Return the record's headers: all fields of a message except its payload. Times are ms since 1970.

    Raises DataLoss if the metadata is damaged.

    A reader gets each message once if it skips records whose (namespace, queue, exclusive value, id, incarnation) it
    has already seen.
    """
    fields = {
        "namespace": namespace,
        "queue": message.queue,
        "id": message.id,
        "incarnation": message.incarnation,
        "attempt": message.attempt,
        "due": message._due_ms,
        "deadline": message._deadline_ms,
    }
    if message.exclusive_value is not None:
        fields["exclusive-value"] = message.exclusive_value
    metadata = message.metadata
    fields |= {f"metadata-{name}": value for name, value in trace_context.strip_trace_context(metadata).items()}
    # Tracing libraries for Kafka read the trace context from these headers, without a prefix.
    trace = [(name, value.encode()) for name, value in metadata.items() if name in trace_context.KEYS]
    return [(f"{SINK_HEADERS}{name}", str(value).encode()) for name, value in fields.items()] + trace
