"""Messages that were leased for sinks and are not settled yet: the brokers' answers, and the leases to extend."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tickwheel.sinks.confirmed_sinks import ConfirmedSinks
from tickwheel.sinks.sink import DeliveryCallback, DeliveryStatus, Sink, SinkMessage
from tickwheel.sinks.unconfirmed_buffer import UnconfirmedBuffer

# A lease is extended when a third of it is over.
_EXTENSIONS: Final = 3
# How many batches are extended before other messages are sent again: each takes a call. The leases of others are
# extended later; from two thirds of their length on, all at once.
EXTENDED_AT_ONCE: Final = 10


class LeaseBatch:
    """Messages that one dequeue has leased."""

    __slots__ = ("extend_at", "is_urgent_at", "lease_ms", "messages", "sink", "url")

    def __init__(self, url: str, sink: Sink, messages: Sequence[SinkMessage], lease_ms: int, now: float) -> None:
        self.url = url
        self.sink = sink
        self.lease_ms = lease_ms
        self.messages = set(messages)
        self.on_extended(now)

    def on_extended(self, now: float) -> None:
        """Record that the leases were taken or extended at ``now``."""
        self.extend_at = now + self.lease_ms / _EXTENSIONS
        self.is_urgent_at = now + 2 * self.lease_ms / _EXTENSIONS


class InFlightMessages:
    """The messages of one shard's sinks. Answers may come from any thread. One thread calls all methods."""

    def __init__(self, wake: Callable[[], None], shard: int, buffer: UnconfirmedBuffer) -> None:
        """``buffer`` is that of all shards."""
        self._wake = wake
        self._shard = shard
        self._buffer = buffer
        self._is_woken = False
        self._batch_of: dict[SinkMessage, LeaseBatch] = {}
        self._batches: dict[LeaseBatch, None] = {}
        self._answers: deque[tuple[SinkMessage, DeliveryStatus, str]] = deque()
        self.sinks = ConfirmedSinks()
        # Messages that the broker has answered and that are not settled yet.
        self.acknowledged: list[SinkMessage] = []
        self.refused: deque[tuple[SinkMessage, str]] = deque()
        # Messages that are not sent yet, or that must be sent again because the answer was lost.
        self.unsent: deque[SinkMessage] = deque()
        # Such messages for unconfirmed sinks, until there is room for them in the buffer.
        self.held_back: deque[SinkMessage] = deque()
        # Unsent messages that have taken room in the buffer.
        self._has_room: set[SinkMessage] = set()

    def __len__(self) -> int:
        return len(self._batch_of)

    def __iter__(self) -> Iterator[SinkMessage]:
        return iter(self._batch_of)

    @property
    def is_blocked(self) -> bool:
        """Whether no message may be leased now: the buffer of the broker's client is full."""
        return bool(self.unsent)

    def add(self, url: str, sink: Sink, messages: Sequence[SinkMessage], lease_ms: int, now: float) -> None:
        """Add messages of one queue that were leased at ``now`` and must be sent to the sink of this URL."""
        batch = LeaseBatch(url, sink, messages, lease_ms, now)
        self._batches[batch] = None
        self._batch_of |= dict.fromkeys(messages, batch)
        for message in messages:
            self.sinks.on_leased(url, message.size)
            self._add_unsent(message, url)

    def send(self) -> None:
        """Send unsent messages, in order, until a sink is full."""
        self._take_room()
        while self.unsent:
            message = self.unsent[0]
            batch = self._batch_of.get(message)
            if batch is not None:
                if not batch.sink.send(message, self._delivery_callback(message)):
                    return
                self._has_room.discard(message)
            elif message in self._has_room:
                self._release(message)
            self.unsent.popleft()

    def forget_unsent(self) -> None:
        """Release the room of unsent messages in the buffer. Called at the end."""
        self.unsent.clear()
        self.held_back.clear()
        for message in [*self._has_room]:
            self._release(message)
        self._buffer.leave(self._shard)

    def drain_answers(self) -> None:
        """Sort the answers into `acknowledged`, `refused` and `unsent`."""
        self._is_woken = False
        while self._answers:
            message, status, reason = self._answers.popleft()
            if (batch := self._batch_of.get(message)) is None:
                continue
            if status is DeliveryStatus.UNKNOWN:
                self._add_unsent(message, batch.url)
                continue
            self.sinks.on_answer(batch.url, acknowledged=status is DeliveryStatus.ACKNOWLEDGED)
            if status is DeliveryStatus.ACKNOWLEDGED:
                self.acknowledged.append(message)
            else:
                self.refused.append((message, reason))

    def on_settled(self, messages: Sequence[SinkMessage]) -> None:
        """Remove messages that are settled, or whose leases are lost."""
        for message in messages:
            batch = self._batch_of.pop(message, None)
            if batch is not None:
                self.sinks.on_settled(batch.url, message.size)
                batch.messages.discard(message)
                if not batch.messages:
                    del self._batches[batch]

    def to_extend(self, now: float) -> list[LeaseBatch]:
        """Return the batches whose leases must be extended now: `EXTENDED_AT_ONCE`, or all that are urgent if more."""
        due = sorted((batch for batch in self._batches if batch.extend_at <= now), key=lambda batch: batch.is_urgent_at)
        return due[: max(EXTENDED_AT_ONCE, sum(batch.is_urgent_at <= now for batch in due))]

    def next_extension(self) -> float | None:
        """Return the moment at which the next leases must be extended; None if there are no messages."""
        return min((batch.extend_at for batch in self._batches), default=None)

    def _add_unsent(self, message: SinkMessage, url: str) -> None:
        (self.unsent if self.sinks.is_confirmed(url) else self.held_back).append(message)

    def _take_room(self) -> None:
        """Move messages from `held_back` to `unsent`, in order, until there is no room for one."""
        if not self.held_back:
            return
        while self.held_back:
            message = self.held_back[0]
            if (batch := self._batch_of.get(message)) is not None:
                if not self.sinks.is_confirmed(batch.url):
                    if not self._buffer.take(self._shard, message.size):
                        return
                    self._has_room.add(message)
                self.unsent.append(message)
            self.held_back.popleft()
        self._buffer.leave(self._shard)

    def _release(self, message: SinkMessage) -> None:
        self._has_room.remove(message)
        self._buffer.release(self._shard, message.size)

    def _delivery_callback(self, message: SinkMessage) -> DeliveryCallback:
        has_room = message in self._has_room

        def on_delivery(status: DeliveryStatus, reason: str) -> None:
            if has_room:
                self._buffer.release(self._shard, message.size)
            self._answers.append((message, status, reason))
            # Invariant: each unread answer has woken the reader. The reader resets `_is_woken` before it reads.
            if not self._is_woken:
                self._is_woken = True
                self._wake()

        return on_delivery
