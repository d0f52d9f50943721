"""The protocol of a sink: it sends due messages to a broker, and reports the broker's answers."""

from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol

from tickwheel.model.message import LeasedMessage
from tickwheel.storage.record import FIXED, HEAD

_TOKEN_BYTES = 16


class SinkMessage(LeasedMessage):
    """A message leased for a sink. ``incarnation`` distinguishes messages that used the same id one after the other."""

    __slots__ = ("incarnation", "size")

    def __init__(self, queue: str, field: bytes, record: bytes, body: bytes, exclusive: bool) -> None:
        super().__init__(queue, field, record, body, exclusive)
        worker_at = HEAD.size + _TOKEN_BYTES
        high, low, *_ = FIXED.unpack_from(record, worker_at + 1 + record[worker_at])
        self.incarnation: int = high << 32 | low
        # Approximate bytes in memory.
        self.size = len(record) + len(body)


class DeliveryStatus(Enum):
    """A broker's answer for a message.

    ACKNOWLEDGED: the broker has the message. REFUSED: the broker rejects the message. UNKNOWN: the answer is lost, so
    the message must be sent again.
    """

    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    UNKNOWN = "unknown"


# Receives the answer, and the reason if the message was rejected.
DeliveryCallback = Callable[[DeliveryStatus, str], Any]


class Sink(Protocol):
    """The destination of a queue's due messages. Used by the threads of all shards."""

    def send(self, message: SinkMessage, on_delivery: DeliveryCallback) -> bool:
        """Start sending a message. Return False if the sink is full; else call ``on_delivery`` once, in any thread.

        During an outage, a sink keeps the message until it can send it, with no time limit. It reports REFUSED only if
        the message or its destination is invalid.
        """
