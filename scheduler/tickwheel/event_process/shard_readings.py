"""The latest readings of a shard's queues, and which queues are read next. No I/O.

The named queues have a reading of their own. The readings of all other queues are summed. Both groups are read in
turns: during a turn, each queue of the group is read once.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Final

from tickwheel.event_process.queue_readings import LATE_BUCKETS, QueueReading
from tickwheel.storage.record import State

# The maximum number of queues in a call.
BATCH: Final = 8
# The minimum time from the start of a turn to the start of the next turn.
TURN_S: Final = 5.0
# All values of a queue are read once in this number of turns, even if its counts have not changed.
FULL_TURNS: Final = 8
# One call of this number is for the other queues, if some of them are due.
OTHERS_CALLS: Final = 4
# The name under which the other queues are summed.
OTHER: Final = "_other"


class QueueGroup:
    """Queues of a shard that are read in turns."""

    def __init__(self) -> None:
        self.readings: dict[str, QueueReading] = {}
        # Whether each queue was read. Queues that are created later do not change this.
        self.is_complete = False
        self._names: Sequence[str] = ()
        self._position = 0
        self._turns = 0
        self._turn_began = -inf

    def set_names(self, names: Sequence[str]) -> list[QueueReading]:
        """Replace the queues of the group. Return the readings of queues that are not in the group any more."""
        self._names = names
        if self._position >= len(names):
            self._position = 0
        kept = set(names)
        return [self.readings.pop(name) for name in list(self.readings) if name not in kept]

    @property
    def is_empty(self) -> bool:
        return not self._names

    def due_at(self) -> float:
        """Return when the next queues of the group must be read."""
        if self.is_empty:
            return inf
        return self._turn_began if self._position else self._turn_began + TURN_S

    def next_batch(self, now: float) -> dict[str, QueueReading | None]:
        """Return the queues to read now, each with its previous reading, or with None if all values must be read."""
        first = self._position
        if first == 0:
            self._turn_began = now
            self._turns += 1
        names = self._names[first : first + BATCH]
        end = first + len(names)
        self._position = end if end < len(self._names) else 0
        return {
            name: None if (self._turns + first + n) % FULL_TURNS == 0 else self.readings.get(name)
            for n, name in enumerate(names)
        }

    def store(self, name: str, reading: QueueReading) -> None:
        self.readings[name] = reading
        self.is_complete = self.is_complete or len(self.readings) >= len(self._names)


class ShardReadings:
    """The latest readings of the queues of one shard, under one epoch of this process."""

    def __init__(self, epoch: int, earlier: "ShardReadings | None" = None, read_from: float = -inf) -> None:
        """The shard is not read before ``read_from``, on the clock of the caller.

        ``earlier`` are the readings of the shard before it was claimed again, or before an error.
        """
        self.epoch = epoch
        self._read_from = read_from
        self._named = self._current = QueueGroup()
        self._others = QueueGroup()
        self._calls = 0
        self._other_counts = [0] * len(State)
        # Counters never fall, so they keep the values of queues that are deleted.
        self._other_errored = 0
        self._other_late = [0] * LATE_BUCKETS
        # The values of both in the earlier readings, until all of these queues were read.
        self._before = None if earlier is None else earlier._other_counters()

    def set_queues(self, named: Sequence[str], others: Sequence[str]) -> None:
        """Replace the queues of the shard."""
        self._named.set_names(named)
        for gone in self._others.set_names(others):
            self._add_to_other_counts(gone.counts, -1)

    def due_at(self) -> float:
        """Return when the next queues must be read."""
        return max(self._read_from, min(self._named.due_at(), self._others.due_at()))

    def next_batch(self, now: float) -> dict[str, QueueReading | None]:
        """Return the queues to read now, each with its previous reading, or with None if all values must be read.

        The batch is empty if no queue is due. The next call of `store` has the readings of this batch.
        """
        if self.due_at() > now:
            return {}
        self._calls += 1
        groups = [self._named, self._others]
        if self._calls % OTHERS_CALLS == 0:
            groups.reverse()
        self._current = next(group for group in groups if group.due_at() <= now)
        return self._current.next_batch(now)

    def store(self, readings: Mapping[str, QueueReading]) -> None:
        """Store the readings of the latest batch."""
        for name, reading in readings.items():
            if self._current is self._others:
                self._add_other(self._others.readings.get(name, QueueReading()), reading)
            self._current.store(name, reading)
        if self._others.is_complete and self._before is not None:
            # What the counters lack of their earlier values is the part of queues that were deleted.
            (self._other_errored, self._other_late), self._before = self._other_counters(), None

    def samples(self) -> Iterator[tuple[str, QueueReading]]:
        """Yield the readings by the name of the queue, without queues that never had a message on the shard.

        The sum of the other queues is left out until each of them was read.
        """
        yield from ((name, reading) for name, reading in self._named.readings.items() if reading.is_used)
        if not self._others.is_empty and self._others.is_complete:
            # If all of these queues are new, none of them has a reading yet.
            head_age_ms = max((reading.head_age_ms for reading in self._others.readings.values()), default=0)
            yield (
                OTHER,
                QueueReading(tuple(self._other_counts), self._other_errored, tuple(self._other_late), head_age_ms),
            )

    def _add_other(self, before: QueueReading, after: QueueReading) -> None:
        self._add_to_other_counts(before.counts, -1)
        self._add_to_other_counts(after.counts, 1)
        self._other_errored += _increase(before.errored, after.errored)
        for bucket, (old, new) in enumerate(zip(before.late, after.late, strict=True)):
            self._other_late[bucket] += _increase(old, new)

    def _other_counters(self) -> tuple[int, list[int]]:
        """Return the counters, `_other_errored` and `_other_late`, but at least their earlier values."""
        errored, late = self._before or (0, self._other_late)
        return max(self._other_errored, errored), list(map(max, self._other_late, late))

    def _add_to_other_counts(self, counts: Sequence[int], sign: int) -> None:
        for n, count in enumerate(counts):
            self._other_counts[n] += sign * count


def _increase(before: int, after: int) -> int:
    """Return by how much a counter has increased. If the counter has fallen, its queue was recreated."""
    return after - before if after >= before else after
