"""The sink of a Kafka topic: a record for each message, keyed by its exclusive value, else by its id."""

from functools import partial
from typing import Any

from tickwheel.kafka.library import kafka_library
from tickwheel.kafka.producer import Broker
from tickwheel.sinks.sink import Answer, DueMessage, Told
from tickwheel.storage import trace_context


class KafkaSink:
    """Sends to one topic."""

    def __init__(self, broker: Broker, namespace: str, topic: str) -> None:
        """``broker`` is one whose refused records fail none but themselves."""
        self._broker = broker
        self._namespace = namespace
        self._topic = topic
        error = kafka_library().KafkaError
        # Whether the broker has the record is not known: the producer failed as a whole, or was given up.
        self._unknown = frozenset({error._FATAL, error._PURGE_QUEUE, error._PURGE_INFLIGHT})

    def send(self, message: DueMessage, told: Told) -> bool:
        producer = self._broker.producer()
        try:
            producer.produce(
                self._topic,
                message.payload,
                key(message),
                headers=headers(self._namespace, message),
                on_delivery=partial(self._report, told),
            )
        except BufferError:
            return False
        except self._broker.errors as error:
            if error.args[0].code() in self._unknown:
                self._broker.give_up(producer)
            self._report(told, error.args[0], None)
        return True

    def _report(self, told: Told, error: Any, _: Any) -> None:
        if error is None:
            told(Answer.ACKNOWLEDGED, "")
        elif error.code() in self._unknown:
            told(Answer.UNKNOWN, "")
        else:
            told(Answer.REFUSED, error.str())


def key(message: DueMessage) -> bytes:
    """What chooses the partition: messages of one exclusive value stay in order."""
    return (message.id if message.exclusive_value is None else message.exclusive_value).encode()


def headers(namespace: str, message: DueMessage) -> list[tuple[str, bytes]]:
    """What is known of a message beside its payload. Times are ms since 1970.

    Who drops what (namespace, queue, exclusive value, id, incarnation) it has seen gets each message once.
    """
    told = {
        "namespace": namespace,
        "queue": message.queue,
        "id": message.id,
        "incarnation": message.incarnation,
        "attempt": message.attempt,
        "due": message.due_ms,
        "deadline": message.deadline_ms,
    }
    if message.exclusive_value is not None:
        told["exclusive-value"] = message.exclusive_value
    metadata = message.metadata
    told |= {f"metadata-{name}": value for name, value in trace_context.without(metadata).items()}
    # Where whoever reads from Kafka looks for it.
    trace = [(name, value.encode()) for name, value in metadata.items() if name in trace_context.KEYS]
    return [(f"tickwheel-{name}", str(value).encode()) for name, value in told.items()] + trace
