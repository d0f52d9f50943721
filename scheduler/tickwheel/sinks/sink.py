"""What a sink is: it sends due messages to a broker, and says what that answered. Another kind is another class."""

from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol

from tickwheel.model.message import LeasedMessage
from tickwheel.storage.record import FIXED, HEAD

_TOKEN_BYTES = 16


class SinkMessage(LeasedMessage):
    """A message that is leased for a sink. ``incarnation`` tells two lives of an id apart."""

    __slots__ = ("deadline_ms", "due_ms", "incarnation", "size")

    def __init__(self, queue: str, field: bytes, record: bytes, body: bytes, exclusive: bool) -> None:
        super().__init__(queue, field, record, body, exclusive)
        worker_at = HEAD.size + _TOKEN_BYTES
        high, low, *_ = FIXED.unpack_from(record, worker_at + 1 + record[worker_at])
        self.incarnation: int = high << 32 | low
        self.due_ms: int = self._due_ms
        self.deadline_ms: int = self._deadline_ms
        # Bytes that it takes in memory, about.
        self.size = len(record) + len(body)


class DeliveryStatus(Enum):
    """What a broker says of a message: it has it; it will not take it; nothing, so it is to be sent again."""

    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    UNKNOWN = "unknown"


# The answer, and why the message was refused.
DeliveryCallback = Callable[[DeliveryStatus, str], Any]


class Sink(Protocol):
    """Where due messages of a queue go. Used by the threads of all shards."""

    def send(self, message: SinkMessage, on_delivery: DeliveryCallback) -> bool:
        """Send a message; False where there is no room for it now. Otherwise ``told`` is called once, from any thread.

        An outage is waited out, however long: only what is wrong with the message or where it is to go is refused.
        """
