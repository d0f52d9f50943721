"""The leader's copy of the shard's slots, and the choice of the next slot to serve.

To *serve* a slot is to cascade it or, on level 2 (the lowest level in Redis), to read it into memory.

The leader is the only writer of the sorted set `slots`. It reads the set at takeover. After that, it makes each change
both in Redis and in this copy.
"""

from dataclasses import dataclass
from heapq import heappop, heappush

from tickwheel.storage.wheel_levels import HIGHEST, LOWEST, serve_time, start


@dataclass(slots=True, eq=False)
class Slot:
    """A slot in use. A slot is a list of chunks in Redis; a chunk packs up to 100 timers.

    ``length`` is the number of chunks, and ``position`` the number of chunks that the driver has read. Both matter on
    level 2 only. Invariant: each timer of the chunks before ``position`` is in memory, or is not open any more
    (`driver/loaded_timers.py`). So when a slot was read to its end and has no open timers, the driver deletes it.
    """

    level: int
    number: int
    length: int | None
    position: int = 0
    queued: bool = False

    @property
    def start_ms(self) -> int:
        return start(self.level, self.number)

    @property
    def read_to_end(self) -> bool:
        return self.position == self.length

    @property
    def has_work(self) -> bool:
        """Whether the slot must still be read (level 2), or cascaded until it is empty (higher levels)."""
        return self.level > LOWEST or not self.read_to_end


class Slots:
    """All slots in use."""

    def __init__(self) -> None:
        self._slots: dict[tuple[int, int], Slot] = {}
        # By level, a heap of the numbers of the slots with work, and of some slots that no longer have work.
        self._work: dict[int, list[int]] = {level: [] for level in range(LOWEST, HIGHEST + 1)}

    def __len__(self) -> int:
        return len(self._slots)

    def get(self, level: int, number: int) -> Slot | None:
        return self._slots.get((level, number))

    def touch(self, level: int, number: int, length: int | None) -> Slot:
        """Set the length of a slot, None if unknown. Add the slot if it is new. Return the slot."""
        slot = self._slots.get((level, number))
        if slot is None:
            slot = self._slots[level, number] = Slot(level, number, length)
        else:
            slot.length = length
        self._queue(slot)
        return slot

    def remove(self, slot: Slot) -> None:
        """Remove a slot that no longer exists in Redis: it was cascaded, or deleted because all its timers are done."""
        del self._slots[slot.level, slot.number]

    def next_to_serve(self, now_ms: int, lowest: int = LOWEST) -> Slot | None:
        """Return the slot to serve next, from level ``lowest`` up; None if no slot must be served yet.

        The slot with the earliest start is first. Of slots with the same start, the slot of the highest level is first.
        """
        earliest: Slot | None = None
        for level in range(HIGHEST, lowest - 1, -1):
            slot = self._head(level)
            if slot is None or serve_time(level, slot.number) > now_ms:
                continue
            if earliest is None or slot.start_ms < earliest.start_ms:
                earliest = slot
        return earliest

    def next_start(self, lowest: int = LOWEST) -> int | None:
        """Return the time, in ms of the shard's clock, at which the next slot with work is due to be served."""
        heads = (self._head(level) for level in range(lowest, HIGHEST + 1))
        return min((serve_time(slot.level, slot.number) for slot in heads if slot), default=None)

    def _head(self, level: int) -> Slot | None:
        work = self._work[level]
        while work:
            slot = self._slots.get((level, work[0]))
            if slot is not None and slot.has_work:
                return slot
            heappop(work)
            if slot is not None:
                slot.queued = False
        return None

    def _queue(self, slot: Slot) -> None:
        if slot.has_work and not slot.queued:
            slot.queued = True
            heappush(self._work[slot.level], slot.number)
