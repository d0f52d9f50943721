"""The timers in the leader's memory, and for each slot the number of timers without a final answer."""

from collections.abc import Iterable

from tickwheel.driver.finished_leases import FinishedLeases
from tickwheel.driver.near_timers import NearTimers
from tickwheel.storage.timer import Kind, iter_timers
from tickwheel.storage.wheel_levels import LOWEST, number


class LoadedTimers:
    """Timers by kind.

    A timer is *open* until a script has acted on the timer or has ignored it as stale, or until the driver drops the
    timer because its lease is known to be over (`finished_leases.py`).

    A slot of level 2, the lowest level in Redis, may be dropped when it has no open timers.
    """

    def __init__(self, now_ms: int) -> None:
        self.near = {kind: NearTimers(now_ms) for kind in Kind}
        # By slot of level 2, the number of its open timers, in memory or sent to a script. The number is enough to
        # decide whether a slot may be dropped. `InboxBuffer.unconfirmed` lists the open timers that may need filing.
        self._open_counts: dict[int, int] = {}
        # Slots whose last open timer was answered, or that had no open timer when they were read.
        self.drained_slots: set[int] = set()
        self.finished_leases = FinishedLeases()
        self.count = 0

    def add_packed(self, packed: bytes) -> int:
        """Add packed timers. Return their number. Raises CorruptTimers, and then adds none of them."""
        near, open_counts = self.near, self._open_counts
        count = 0
        for time_ms, _, kind, timer in list(iter_timers(packed)):
            near[kind].add(time_ms, timer)
            slot_number = number(LOWEST, time_ms)
            open_counts[slot_number] = open_counts.get(slot_number, 0) + 1
            count += 1
        self.count += count
        return count

    def add(self, time_ms: int, kind: Kind, timer: bytes) -> None:
        """Add one timer that is already unpacked."""
        self.near[kind].add(time_ms, timer)
        slot_number = number(LOWEST, time_ms)
        self._open_counts[slot_number] = self._open_counts.get(slot_number, 0) + 1
        self.count += 1

    def on_answered(self, timers: Iterable[bytes]) -> None:
        """Record the final answers of these timers."""
        open_counts = self._open_counts
        for timer in timers:
            slot_number = number(LOWEST, time_of(timer))
            left = open_counts[slot_number] - 1
            if left:
                open_counts[slot_number] = left
            else:
                del open_counts[slot_number]
                self.drained_slots.add(slot_number)
            self.count -= 1

    def leave_out(self, timers: int) -> None:
        """Record that this number of open timers is no longer in memory.

        The timers stay open, so their slots stay in Redis: the next take-over of the shard loads the timers again.
        """
        self.count -= timers

    def is_open(self, slot_number: int) -> bool:
        return slot_number in self._open_counts


def time_of(timer: bytes) -> int:
    """Return the time of a packed timer, in ms."""
    return int.from_bytes(timer[:6], "big")
