"""The sinks that may have many messages in flight: their broker has acknowledged a message since it last rejected one.

A message for a topic that does not exist is in flight for about 30 s, until Kafka's client gives up. If such messages
took all places of a shard, no other sink would get any. So an unconfirmed sink has one message in flight, and all
unconfirmed sinks have at most half of the places. TCP limits a sender that has no acknowledgement yet in the same way
(slow start, RFC 5681).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

# Limits of the messages in flight to all unconfirmed sinks of a shard.
UNCONFIRMED_MESSAGES: Final = 500
UNCONFIRMED_BYTES: Final = 2 * 2**20


@dataclass(slots=True)
class _InFlight:
    """The number of messages in flight, and their size in bytes."""

    messages: int = 0
    size: int = 0

    def add(self, messages: int, size: int) -> None:
        self.messages += messages
        self.size += size


class ConfirmedSinks:
    """The confirmed sinks of one shard, and the queues that wait for a place. Sinks are URLs."""

    def __init__(self) -> None:
        self._confirmed: set[str] = set()
        self._by_sink: defaultdict[str, _InFlight] = defaultdict(_InFlight)
        self._unconfirmed = _InFlight()
        self._waiting: dict[str, dict[str, None]] = {}
        # Whether a queue that waits may have got a place since the last `take_ready`.
        self._has_changed = False

    def is_confirmed(self, sink: str) -> bool:
        """Return whether the sink is confirmed."""
        return sink in self._confirmed

    def limit(self, sink: str, capacity: int) -> int:
        """Return how many of ``capacity`` messages may be leased for the sink now."""
        if sink in self._confirmed:
            return capacity
        return min(capacity, 1) if self._has_room(sink) else 0

    def wait(self, sink: str, queue: str) -> None:
        """Remember a queue that may lease no message now; see `take_ready`."""
        self._waiting.setdefault(sink, {})[queue] = None

    def on_leased(self, sink: str, size: int) -> None:
        """Record a message for the sink, with its size in bytes."""
        self._add(sink, 1, size)

    def on_settled(self, sink: str, size: int) -> None:
        """Record that a message is not in flight any more."""
        self._add(sink, -1, -size)
        self._has_changed = True
        if not self._by_sink[sink].messages:
            del self._by_sink[sink]

    def on_answer(self, sink: str, *, acknowledged: bool) -> None:
        """Record the answer of the broker for a message that is in flight."""
        if acknowledged == (sink in self._confirmed):
            return
        self._has_changed = True
        in_flight = self._by_sink[sink]
        if acknowledged:
            self._confirmed.add(sink)
            self._unconfirmed.add(-in_flight.messages, -in_flight.size)
        else:
            self._confirmed.remove(sink)
            self._unconfirmed.add(in_flight.messages, in_flight.size)

    def take_ready(self) -> Iterator[str]:
        """Forget and yield the queues that may have a place now, in the order in which their sinks began to wait."""
        if not self._has_changed or not self._waiting:
            return
        ready = [sink for sink in self._waiting if sink in self._confirmed]
        free = max(0, UNCONFIRMED_MESSAGES - self._unconfirmed.messages)
        unconfirmed = (sink for sink in self._waiting if sink not in self._confirmed and self._has_room(sink))
        ready += islice(unconfirmed, free)
        # If the queues that are ready have no messages, the others must not wait for the next message that is settled.
        self._has_changed = next(unconfirmed, None) is not None
        for sink in ready:
            yield from self._waiting.pop(sink)

    def forget_others(self, sinks: Mapping[str, str]) -> None:
        """Forget other sinks that have no message in flight, and other queues that wait. ``sinks`` are by queue."""
        self._confirmed.intersection_update({*sinks.values(), *self._by_sink})
        for sink, queues in [*self._waiting.items()]:
            for queue in [queue for queue in queues if sinks.get(queue) != sink]:
                del queues[queue]
            if not queues:
                del self._waiting[sink]

    def _add(self, sink: str, messages: int, size: int) -> None:
        self._by_sink[sink].add(messages, size)
        if sink not in self._confirmed:
            self._unconfirmed.add(messages, size)

    def _has_room(self, sink: str) -> bool:
        """Return whether an unconfirmed sink may have a message in flight."""
        total = self._unconfirmed
        return sink not in self._by_sink and total.messages < UNCONFIRMED_MESSAGES and total.size < UNCONFIRMED_BYTES
