"""What was read from the inbox and is not yet filed.

Entries wait in two buckets that are rotated every second, and the older is filed: so a timer is filed 1 to 2 s after it
was read, and one with a delay under a second never. Entries are filed in the order of the inbox, so that what is cut
from it is always a prefix.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from tickwheel.driver.finished_leases import FinishedLeases
from tickwheel.storage.timer import Kind, iter_timers

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


@dataclass(slots=True)
class _Bucket:
    entries: deque[Entry] = field(default_factory=deque)
    count: int = 0

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.count += entry.count


class InboxBuffer:
    """The buckets, and which of their near timers have no final answer yet."""

    def __init__(self) -> None:
        self.last_read_id = FROM_START
        # Invariant: a near timer of the buckets is in here until it has its final answer. `LoadedTimers` counts these
        # timers, too, for another purpose. Filing must know each timer that only the inbox keeps. Dropping a slot needs
        # the number of its open timers, and most of those were read from the slot and never were in a bucket.
        self.unconfirmed: set[bytes] = set()
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
        self.unconfirmed.update(entry.near)
        self.last_read_id = entry.id

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

    def prefix(self, max_timers: int) -> list[Entry]:
        """The next entries to file: as many as hold about ``most`` timers, at least one if there is one."""
        taken: list[Entry] = []
        count = 0
        for entry in self._filing.entries:
            if taken and count + entry.count > max_timers:
                break
            taken.append(entry)
            count += entry.count
        return taken

    def on_filed(self, prefix: list[Entry]) -> None:
        """The prefix is in the slots and no longer in the inbox."""
        for entry in prefix:
            first = self._filing.entries.popleft()
            assert first is entry, "entries are filed in the order of the inbox"
            self._filing.count -= entry.count
            self.unconfirmed.difference_update(entry.near)


def timers_to_file(prefix: list[Entry], unconfirmed: set[bytes], finished_leases: FinishedLeases) -> Iterator[bytes]:
    """What the filing of the prefix must carry, in packed pieces: of a message that is finished no lease timer."""
    for entry in prefix:
        yield b"".join(
            [t for _, _, kind, t in iter_timers(entry.far) if kind is not Kind.EXPIRE or not finished_leases.has(t)]
        )
        for timer in entry.near:
            if timer in unconfirmed:
                yield timer
