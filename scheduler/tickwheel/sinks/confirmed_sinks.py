"""How many messages each sink of a shard may have in flight, so that no sink takes the places of all others.

A sink is *confirmed* if its broker has acknowledged a message since it last rejected one. A message for a topic that
does not exist is in flight for about 30 s, until Kafka's client gives up. So an unconfirmed sink has one message in
flight, and all unconfirmed sinks have at most half of the places. TCP limits a sender that has no acknowledgement yet
in the same way (slow start, RFC 5681).

A topic with a partition that has no leader, or too few replicas, keeps its messages in flight until the partition is
back. So a confirmed sink has at most a third of the places that are free: one such topic takes a quarter of the places,
the next one a quarter of the rest. Switches share their buffers among their ports in the same way (Choudhury and Hahne,
Dynamic queue length thresholds for shared-memory packet switches, 1998).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

# Limits of the messages in flight to all sinks of a shard. They bound the memory, and the number of messages that may
# arrive twice after a crash.
MESSAGES: Final = 1_000
BYTES: Final = 4 * 2**20
# The part of them for all unconfirmed sinks.
UNCONFIRMED_MESSAGES: Final = MESSAGES // 2
UNCONFIRMED_BYTES: Final = BYTES // 2
# A confirmed sink has at most one place for each group of free places of this size.
_FREE_PLACES: Final = 3
# A confirmed sink that has messages in flight gets at least this number of places at once, or as many as it has.
# Otherwise it waits until more of its messages are settled.
_MIN_BATCH: Final = 100


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
        self._total = _InFlight()
        self._unconfirmed = _InFlight()
        self._waiting: dict[str, dict[str, None]] = {}
        # Whether a queue that waits may have got a place since the last `take_ready`.
        self._has_changed = False

    def is_confirmed(self, sink: str) -> bool:
        """Return whether the sink is confirmed."""
        return sink in self._confirmed

    def limit(self, sink: str) -> int:
        """Return how many messages may be leased for the sink now."""
        free, free_bytes = MESSAGES - self._total.messages, BYTES - self._total.size
        if free <= 0 or free_bytes <= 0:
            return 0
        if sink not in self._confirmed:
            return int(self._has_room(sink))
        if sink not in self._by_sink:
            return max(free // (_FREE_PLACES + 1), 1)
        in_flight = self._by_sink[sink]
        # Each of these messages also takes a free place.
        more = (free - _FREE_PLACES * in_flight.messages) // (_FREE_PLACES + 1)
        has_room = _FREE_PLACES * in_flight.size < free_bytes and more >= min(_MIN_BATCH, in_flight.messages)
        return more if has_room else 0

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
        ready = [sink for sink in self._waiting if sink in self._confirmed and self.limit(sink)]
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
        self._total.add(messages, size)
        if sink not in self._confirmed:
            self._unconfirmed.add(messages, size)

    def _has_room(self, sink: str) -> bool:
        """Return whether an unconfirmed sink may have a message in flight."""
        total = self._unconfirmed
        return sink not in self._by_sink and total.messages < UNCONFIRMED_MESSAGES and total.size < UNCONFIRMED_BYTES
