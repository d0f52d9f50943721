"""Messages that were leased for sinks and are not settled yet: what was answered, and whose lease is to be extended."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from tickwheel.sinks.sink import DeliveryCallback, DeliveryStatus, Sink, SinkMessage

# How much of a shard is leased for sinks at most: what may come twice after a crash, and what is held in memory.
MESSAGES: Final = 1_000
BYTES: Final = 4 * 2**20
# A lease is extended when a third of it is over.
_EXTENSIONS: Final = 3


class LeaseBatch:
    """Messages that were leased together."""

    __slots__ = ("extend_at", "lease_ms", "messages", "sink")

    def __init__(self, sink: Sink, messages: Sequence[SinkMessage], lease_ms: int, now: float) -> None:
        self.sink = sink
        self.lease_ms = lease_ms
        self.messages = set(messages)
        self.on_extended(now)

    def on_extended(self, now: float) -> None:
        """Their leases were made to last from ``now`` on."""
        self.extend_at = now + self.lease_ms / _EXTENSIONS


class InFlightMessages:
    """What a shard's sinks have in hand. Brokers answer from any thread; all else is for one."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._is_woken = False
        self._batch_of: dict[SinkMessage, LeaseBatch] = {}
        self._batches: dict[LeaseBatch, None] = {}
        self._answers: deque[tuple[SinkMessage, DeliveryStatus, str]] = deque()
        self._size = 0
        # Of those that were answered and not settled.
        self.acknowledged: list[SinkMessage] = []
        self.refused: deque[tuple[SinkMessage, str]] = deque()
        self.unsent: deque[SinkMessage] = deque()

    def __len__(self) -> int:
        return len(self._batch_of)

    @property
    def capacity(self) -> int:
        """How many more messages may be leased now."""
        return 0 if self._size >= BYTES or self.unsent else MESSAGES - len(self)

    def add(self, sink: Sink, messages: Sequence[SinkMessage], lease_ms: int, now: float) -> None:
        """Leased at ``now``, and to be sent; all of one queue."""
        batch = LeaseBatch(sink, messages, lease_ms, now)
        self._batches[batch] = None
        self._batch_of |= dict.fromkeys(messages, batch)
        self._size += sum(message.size for message in messages)
        self.unsent += messages

    def send(self) -> None:
        """Send what is not sent, in order, until a sink has no room."""
        while self.unsent:
            message = self.unsent[0]
            batch = self._batch_of.get(message)
            if batch is not None and not batch.sink.send(message, self._delivery_callback(message)):
                return
            self.unsent.popleft()

    def drain_answers(self) -> None:
        """Sort what was answered."""
        self._is_woken = False
        while self._answers:
            message, status, reason = self._answers.popleft()
            if message not in self._batch_of:
                continue
            if status is DeliveryStatus.ACKNOWLEDGED:
                self.acknowledged.append(message)
            elif status is DeliveryStatus.REFUSED:
                self.refused.append((message, reason))
            else:
                self.unsent.append(message)

    def on_settled(self, messages: Sequence[SinkMessage]) -> None:
        """These are finished, or their leases are lost."""
        for message in messages:
            batch = self._batch_of.pop(message, None)
            if batch is not None:
                self._size -= message.size
                batch.messages.discard(message)
                if not batch.messages:
                    del self._batches[batch]

    def to_extend(self, now: float) -> list[LeaseBatch]:
        """Whose leases are to be extended now."""
        return [batch for batch in self._batches if batch.extend_at <= now]

    def next_extension(self) -> float | None:
        """When that is next."""
        return min((batch.extend_at for batch in self._batches), default=None)

    def _delivery_callback(self, message: SinkMessage) -> DeliveryCallback:

        def on_delivery(status: DeliveryStatus, reason: str) -> None:
            self._answers.append((message, status, reason))
            # Invariant: an answer that is not read yet has woken the reader, which resets this before it reads.
            if not self._is_woken:
                self._is_woken = True
                self._wake()

        return on_delivery
