"""The levels and slots of the wheel: arithmetic only.

The radix is 64, and a tick is 1 ms. A slot of level k spans 64**k ms and has the absolute number time // 64**k, so slot
numbers never wrap. Levels 0 and 1 are in memory (`driver/near_timers.py`). The slots of levels 2 to 5 are lists in
Redis. Level 5 takes all timers that are too far ahead for the other levels.
"""

from typing import Final

LOWEST: Final = 2
HIGHEST: Final = 5
RADIX: Final = 64
_BITS: Final = 6


def length(level: int) -> int:
    """Return the span of a slot of the level, in ms."""
    return 1 << _BITS * level


def number(level: int, time_ms: int) -> int:
    """Return the number of the slot of the level that contains the time."""
    return time_ms >> _BITS * level


def start(level: int, slot_number: int) -> int:
    """Return the time at which the slot starts, in ms since 1970."""
    return slot_number << _BITS * level


def level_for(time_ms: int, now_ms: int) -> int:
    """Return the level on which to file a timer.

    This is the highest level on which the slot with the timer's time is not cascaded yet. On such a level, the time
    from now to the start of the slot is longer than one slot of the level below. If there is no such level, for example
    because the time is in the past, the timer is filed on level 2.
    """
    level = HIGHEST
    while level > LOWEST and start(level, number(level, time_ms)) <= now_ms + length(level - 1):
        level -= 1
    return level


def lead_time(level: int) -> int:
    """Return how long before its start a slot is cascaded (level 2: read), in ms.

    The lead time of a cascade is the length of a slot of the level below, so that the timers are in lower slots in
    time. The lead time of reading a slot of level 2 is the length of a slot of level 2, which agrees with `is_near`.
    """
    return length(max(level - 1, LOWEST))


def serve_time(level: int, slot_number: int) -> int:
    """Return the time from which a driver serves the slot: cascades it or, on level 2, reads it."""
    return start(level, slot_number) - lead_time(level)


def is_near(time_ms: int, now_ms: int) -> bool:
    """Return whether a timer belongs in memory: its time is in the current or next slot of level 2, or in the past."""
    return number(LOWEST, time_ms) <= number(LOWEST, now_ms) + 1


def name(level: int, slot_number: int) -> str:
    """Return the member that represents the slot in the sorted set `slots`."""
    return f"{level}:{slot_number}"


def parse(slot_name: bytes) -> tuple[int, int]:
    """Return level and number of a member of `slots`."""
    level, _, slot_number = slot_name.partition(b":")
    return int(level), int(slot_number)
