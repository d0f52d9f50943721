"""The timers that the leader holds, and how many of each slot still wait for their final answer."""

from collections.abc import Iterable

from tickwheel.driver.finished_leases import EndedLeases
from tickwheel.driver.near_timers import NearTimers
from tickwheel.storage.timer import Kind, split
from tickwheel.storage.wheel_levels import LOWEST, number


class Memory:
    """Timers by kind. A slot of level 2 may be dropped once none of its timers is open."""

    def __init__(self, now_ms: int) -> None:
        self.near = {kind: NearTimers(now_ms) for kind in Kind}
        # Timers held or sent, by the number of their slot of level 2, until their final answer.
        self._open: dict[int, int] = {}
        # Slots whose last open timer was answered, or that were found to have none.
        self.quiet: set[int] = set()
        self.ended = EndedLeases()
        self.count = 0

    def hold(self, packed: bytes) -> int:
        """Take packed timers in; how many they were."""
        near, opened = self.near, self._open
        held = 0
        for time_ms, _, kind, timer in split(packed):
            near[kind].add(time_ms, timer)
            slot_number = number(LOWEST, time_ms)
            opened[slot_number] = opened.get(slot_number, 0) + 1
            held += 1
        self.count += held
        return held

    def hold_one(self, time_ms: int, kind: Kind, timer: bytes) -> None:
        """Take one timer in that is already taken apart."""
        self.near[kind].add(time_ms, timer)
        slot_number = number(LOWEST, time_ms)
        self._open[slot_number] = self._open.get(slot_number, 0) + 1
        self.count += 1

    def answered(self, timers: Iterable[bytes]) -> None:
        """These have their final answer."""
        opened = self._open
        for timer in timers:
            slot_number = number(LOWEST, time_of(timer))
            left = opened[slot_number] - 1
            if left:
                opened[slot_number] = left
            else:
                del opened[slot_number]
                self.quiet.add(slot_number)
            self.count -= 1

    def is_open(self, slot_number: int) -> bool:
        return slot_number in self._open


def time_of(timer: bytes) -> int:
    """When a packed timer is due."""
    return int.from_bytes(timer[:6], "big")
