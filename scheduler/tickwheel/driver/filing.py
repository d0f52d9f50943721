"""Sorts timers into slots: the arguments of one call of `file_timers.lua`."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tickwheel.runtime.chunks import iter_chunks
from tickwheel.storage.timer import iter_timers
from tickwheel.storage.wheel_levels import level_for, name, number, start

# Number of timers in a chunk, which is one element of a slot's list. A chunk has about 4 KB, and a node of a Redis list
# holds up to 8 KB, so two chunks share a node. A cascade moves whole chunks.
CHUNK_TIMERS = 100


@dataclass(slots=True)
class Filing:
    """Timers by slot; a slot is (level, number)."""

    slots: dict[tuple[int, int], list[bytes]] = field(default_factory=dict)

    def add(self, pieces: Iterable[bytes], now_ms: int) -> None:
        """Sort timers into the slots of their times. Each of the ``pieces`` is a string of packed timers."""
        slots = self.slots
        for piece in pieces:
            for time_ms, _, _, timer in iter_timers(piece):
                level = level_for(time_ms, now_ms)
                slot = level, number(level, time_ms)
                timers = slots.get(slot)
                if timers is None:
                    slots[slot] = [timer]
                else:
                    timers.append(timer)

    def arguments(self) -> list[bytes | int | str]:
        """Return the arguments of `file_timers.lua` for all slots, in the order of `slots`."""
        args: list[bytes | int | str] = []
        for (level, slot_number), timers in self.slots.items():
            chunks = [b"".join(chunk) for chunk in iter_chunks(timers, CHUNK_TIMERS)]
            args += [name(level, slot_number), start(level, slot_number), len(chunks), *chunks]
        return args
