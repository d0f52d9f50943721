"""Inbox entries that were read and are not yet filed.

Entries wait in two buckets, young and older. Every second the older bucket becomes the bucket that is filed, the young
bucket becomes the older one, and new entries go to an empty bucket. So a timer is usually filed 1 to 2 s after it was
read. A timer with a delay under a second usually fires before that, and is not filed. Entries are filed in the order of
the inbox, so the filed entries are always the first entries of the inbox: a prefix, which one trim removes.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

from tickwheel.driver.finished_leases import FinishedLeases
from tickwheel.storage.stream_id import HIGHEST_ID
from tickwheel.storage.timer import Kind, iter_timers

ROTATE_MS = 1_000
# If the buckets hold more timers than this, the driver is catching up with the inbox, and everything is filed
# immediately. The same happens if a rotation is a whole period late, because the process was paused. Some timers in the
# buckets, which were too far from due to be loaded, may be due now, and the driver loads them only from their slots.
HURRY_TIMERS = 50_000
FROM_START = b"0-0"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: ``far`` packs the timers that were not loaded into memory; ``near`` lists the loaded timers."""

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
    """The buckets, and the near timers in them that do not have their final answer yet (see `driver/firing.py`)."""

    def __init__(self) -> None:
        self.last_read_id = FROM_START
        # Invariant: `unconfirmed` contains each near timer of the buckets until its final answer. `LoadedTimers` cannot
        # replace this set, because `LoadedTimers` only counts the open timers of each slot, and does not know which of
        # them came from the inbox.
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
        """Rotate the buckets if a rotation is due and the bucket that is being filed is empty."""
        if self._filing.entries or (monotonic_ms < self._rotate_at and self.count <= HURRY_TIMERS):
            return
        self._filing, self._older, self._young = self._older, self._young, _Bucket()
        if self.count > HURRY_TIMERS or monotonic_ms >= self._rotate_at + ROTATE_MS:
            self._filing.entries += self._older.entries
            self._filing.count += self._older.count
            self._older = _Bucket()
        self._rotate_at = monotonic_ms + ROTATE_MS

    def next_rotation(self) -> float:
        """Return the moment on the monotonic clock of the next filing or rotation.

        0 means immediately, and infinity means that there are no entries.
        """
        if self._filing.entries or self.count > HURRY_TIMERS:
            return 0.0
        return self._rotate_at if self._young.entries or self._older.entries else inf

    def prefix(self, max_timers: int) -> list[Entry]:
        """Return the next entries to file: at most ``max_timers`` timers, but at least one entry if there are any."""
        taken: list[Entry] = []
        count = 0
        for entry in self._filing.entries:
            if taken and count + entry.count > max_timers:
                break
            taken.append(entry)
            count += entry.count
        return taken

    def on_filed(self, prefix: list[Entry]) -> None:
        """Drop the prefix: its timers are now in slots, and its entries are no longer in the inbox."""
        for entry in prefix:
            first = self._filing.entries.popleft()
            assert first is entry, "entries are filed in the order of the inbox"
            self._filing.count -= entry.count
            self.unconfirmed.difference_update(entry.near)
        if prefix[-1].id == HIGHEST_ID:
            # The next entry is the first entry of a new inbox.
            self.last_read_id = FROM_START


def timers_to_file(prefix: list[Entry], unconfirmed: set[bytes], finished_leases: FinishedLeases) -> Iterator[bytes]:
    """Yield the timers of the prefix that must be filed, in packed pieces. Skip lease timers of finished messages."""
    for entry in prefix:
        yield b"".join(
            [t for _, _, kind, t in iter_timers(entry.far) if kind is not Kind.EXPIRE or not finished_leases.has(t)]
        )
        for timer in entry.near:
            if timer in unconfirmed:
                yield timer
