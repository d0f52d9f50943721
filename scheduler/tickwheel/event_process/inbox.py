"""What was read from the inbox and is not yet filed.

Entries wait in two buckets that are rotated every second, and the older is filed: so a timer is filed 1 to 2 s after it
was read, and one with a delay under a second never. Entries are filed in the order of the inbox, so that what is cut
from it is always a prefix.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from tickwheel.timers import Kind, message_of, split

ROTATE_MS = 1_000
# With more timers than this in the buckets, all is filed at once: the inbox is being caught up with. So it is when a
# rotation comes a whole period late, for then the process was stopped, and what was far may be due.
HURRY_TIMERS = 50_000
FROM_START = b"0-0"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: the timers that were not put in memory, packed, and those that were."""

    id: bytes
    far: bytes
    near: list[bytes]
    count: int
    ended: list[bytes] = field(default_factory=list)
    """The messages that retention timers of this entry say are finished: their leases are over."""


@dataclass(slots=True)
class _Bucket:
    entries: deque[Entry] = field(default_factory=deque)
    count: int = 0

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.count += entry.count


class Unfiled:
    """The buckets, and which of their near timers have no final answer yet."""

    def __init__(self) -> None:
        self.read_up_to = FROM_START
        # Invariant: a near timer of the buckets is in here until it has its final answer.
        self.unanswered: set[bytes] = set()
        # Messages with a retention timer in the buckets. A lease timer that comes before it is stale and is not filed:
        # a message that is completed within a second or two costs the wheel one timer, not two.
        self.ended: set[bytes] = set()
        self._young = _Bucket()
        self._older = _Bucket()
        self._filing = _Bucket()
        self._rotate_at = 0.0

    @property
    def count(self) -> int:
        return self._young.count + self._older.count + self._filing.count

    def add(self, entry: Entry, monotonic_ms: float) -> None:
        if not self._young.entries and not self._older.entries:
            self._rotate_at = monotonic_ms + ROTATE_MS
        self._young.add(entry)
        self.unanswered.update(entry.near)
        self.ended.update(entry.ended)
        self.read_up_to = entry.id

    def rotate(self, monotonic_ms: float) -> None:
        """Turn the buckets if it is time to. What is being filed is finished first."""
        if self._filing.entries or (monotonic_ms < self._rotate_at and self.count <= HURRY_TIMERS):
            return
        self._filing, self._older, self._young = self._older, self._young, _Bucket()
        if self.count > HURRY_TIMERS or monotonic_ms >= self._rotate_at + ROTATE_MS:
            self._filing.entries += self._older.entries
            self._filing.count += self._older.count
            self._older = _Bucket()
        self._rotate_at = monotonic_ms + ROTATE_MS

    def next_rotation(self) -> float | None:
        """When there is something to file or to rotate, on the monotonic clock."""
        if self._filing.entries or self.count > HURRY_TIMERS:
            return 0.0
        return self._rotate_at if self._young.entries or self._older.entries else None

    def prefix(self, most: int) -> list[Entry]:
        """The next entries to file: as many as hold about ``most`` timers, at least one if there is one."""
        taken: list[Entry] = []
        count = 0
        for entry in self._filing.entries:
            if taken and count + entry.count > most:
                break
            taken.append(entry)
            count += entry.count
        return taken

    def filed(self, prefix: list[Entry]) -> None:
        """The prefix is in the slots and no longer in the inbox."""
        for entry in prefix:
            first = self._filing.entries.popleft()
            assert first is entry, "entries are filed in the order of the inbox"
            self._filing.count -= entry.count
            self.unanswered.difference_update(entry.near)


def id_after(entry_id: bytes) -> bytes:
    """The smallest id of a stream above this one."""
    milliseconds, _, sequence = entry_id.partition(b"-")
    return b"%s-%d" % (milliseconds, int(sequence) + 1)


def to_file(prefix: list[Entry], unanswered: set[bytes], ended: set[bytes]) -> Iterator[bytes]:
    """What the filing of the prefix must carry, in packed pieces; takes off ``ended`` what the prefix ends."""
    for entry in prefix:
        # In the order of the inbox: what follows a retention timer belongs to a message that was redriven since.
        ended.difference_update(entry.ended)
        if entry.far:
            yield _without_ended_leases(entry.far, ended) if ended else entry.far
        for timer in entry.near:
            if timer in unanswered:
                yield timer


def _without_ended_leases(packed: bytes, ended: set[bytes]) -> bytes:
    kept = [t for _, _, kind, t in split(packed) if kind is not Kind.EXPIRE or message_of(t) not in ended]
    return b"".join(kept)
