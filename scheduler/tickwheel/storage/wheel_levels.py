"""Which slot of the wheel a time belongs to: arithmetic only.

Radix 64, tick 1 ms: a slot of level k spans 64**k ms and has the absolute number time // 64**k, so nothing wraps.
Levels 0 and 1 are memory (`driver/near_timers.py`), levels 2 to 5 are lists in Redis. The highest level is unbounded.
"""

from typing import Final

LOWEST: Final = 2
HIGHEST: Final = 5
RADIX: Final = 64
_BITS: Final = 6


def length(level: int) -> int:
    """The span of a slot of the level, in ms."""
    return 1 << _BITS * level


def number(level: int, time_ms: int) -> int:
    """The slot of the level that the time falls into."""
    return time_ms >> _BITS * level


def start(level: int, slot_number: int) -> int:
    """When the slot starts, in ms."""
    return slot_number << _BITS * level


def level_for(time_ms: int, now_ms: int) -> int:
    """The level that a timer is filed on: the highest whose slot has not come within one slot of the level below.

    Times that have passed, however long ago, are of level 2.
    """
    level = HIGHEST
    while level > LOWEST and start(level, number(level, time_ms)) <= now_ms + length(level - 1):
        level -= 1
    return level


def lead_time(level: int) -> int:
    """How long before its start a slot is served, in ms.

    It is cascaded one slot of the level below ahead, so that its children are there in time; a slot of level 2 is read
    one slot ahead, so that `near` and this agree.
    """
    return length(max(level - 1, LOWEST))


def is_near(time_ms: int, now_ms: int) -> bool:
    """Whether a timer is held in memory: it falls into the current or the next slot of level 2, or has passed."""
    return number(LOWEST, time_ms) <= number(LOWEST, now_ms) + 1


def name(level: int, slot_number: int) -> str:
    """The slot's member in the sorted set `slots`."""
    return f"{level}:{slot_number}"


def parse(slot_name: bytes) -> tuple[int, int]:
    """Level and number of a member of `slots`."""
    level, _, slot_number = slot_name.partition(b":")
    return int(level), int(slot_number)
