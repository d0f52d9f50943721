"""The hierarchical timing wheel: chooses the level of each timer, and moves timers down as the time advances.

The design is scheme 7 of Varghese and Lauck, "Hashed and hierarchical timing wheels" (SOSP 1987). Two ideas are from
the timer of Kafka's brokers: levels are created on demand, and empty slots are skipped. Two are from tokio's timer: a
bit for each occupied slot, and rounding up.
"""

import reprlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

from timing_wheel.level import Level
from timing_wheel.timer import Timer, expiry_of, new_timer

T = TypeVar("T")


class TimingWheel(Generic[T]):
    """Keeps items until their time; `advance` returns the items that are due.

    Times are absolute ints in a unit of the caller's choice, for example milliseconds since 1970. They may be negative.
    `now` is the time at the start, `tick` is the resolution in the same unit, and `radix` is the number of slots of a
    level.

    A slot of level k is `tick * radix**k` wide. Level k contains the timers that are due within the current slot of
    level k + 1. Slots are counted from the start. A wheel that was started at 0 with tick 1 and radix 10, and has
    reached 234, keeps an item that is due at

        238   in level 0, slot 238:             within the current ten
        251   in level 1, slot 25 (250 to 259): within the current hundred
        700   in level 2, slot 7  (700 to 799): within the current thousand
        9000  in level 3, slot 9, which is created on demand

    So all timers of a level are due before all timers of the levels above it, and the earliest occupied slot of the
    lowest occupied level is the next to open. Opening a slot spreads its timers over the level below (a cascade). The
    timers of a slot of level 0 are due.

    The wheel's current time is the latest time *reached*. A backward step of the clock has no effect: the wheel waits
    until the clock has caught up.

    Raises `TypeError` for a time that is not an int, and for a bool. Raises `ValueError` for a tick below 1 or a radix
    below 2. Both errors are raised before anything changes.

    Not safe to share between threads without a lock. The wheel never calls, compares or hashes an item, so no code of
    an item can call the wheel from inside one of its methods.
    """

    __slots__ = ("_count", "_due", "_ends", "_levels", "_origin", "_radix", "_reached", "_tick")

    def __init__(self, now: int, *, tick: int = 1, radix: int = 64) -> None:
        now = _check_int("now", now)
        self._tick = _check_int("tick", tick, at_least=1)
        self._radix = _check_int("radix", radix, at_least=2)
        # Internally, times are counted from the origin, which is the last tick at or before the start. So the time
        # reached is never negative. If it were -1, the range that a level covers would end at 0 on every level, and no
        # number of levels would reach beyond 0.
        self._origin = now - now % self._tick
        self._reached = now - self._origin
        self._count = 0
        # Timers due at `_reached`, in the order in which `advance` returns them.
        self._due: dict[Timer, T] = {}
        self._levels: list[Level[T]] = []
        # For each level, the end of the range of times that its slots cover now, ascending.
        # Invariant: a timer that is not due is in the first level with expiry < end.
        self._ends: list[int] = []
        self._add_level()

    @property
    def reached(self) -> int:
        """The latest time reached, which `add` and `advance` take as the current time."""
        return self._origin + self._reached

    def add(self, time: int, item: T) -> Timer:
        """Keep `item` until `time`. Return a timer for `cancel`. Costs O(levels), for any number of timers.

        A time between two ticks counts as the later tick. A time that was already reached is due immediately: the next
        `advance` returns the item after those that are due already, and before those with a later time.
        """
        time = _check_int("time", time) - self._origin
        if time <= self._reached:
            timer = new_timer(self._reached)
            self._due[timer] = item
        else:
            expiry = round_up(time, self._tick)
            timer = new_timer(expiry)
            self._level_of(expiry).put(timer, item)
        self._count += 1
        return timer

    def cancel(self, timer: Timer) -> bool:
        """Remove a timer and its item. Costs O(levels).

        Return true if that prevents the item from being returned. Return false if the item was already returned, if the
        timer was cancelled before, or if it belongs to another wheel.
        """
        expiry = expiry_of(Timer(_check_int("timer", timer)))
        if expiry <= self._reached:
            existed = timer in self._due
            if existed:
                del self._due[timer]
        else:
            existed = expiry < self._ends[-1] and self._level_of(expiry).remove(timer)
        self._count -= existed
        return existed

    def advance(self, now: int, *, limit: int | None = None) -> list[T]:
        """Remove and return the items due at `now`, in the order of their ticks and, within a tick, of their `add`.

        Returns at most `limit` items. `limit` is at least 1, or None for all items. The other due items stay in the
        wheel, can still be cancelled, and are returned by the next calls. A full list means that the wheel has only
        reached the tick of the list's last item, so items that are added next are still returned in order. A shorter or
        empty list means that the wheel has reached `now`, and nothing more is due.

        Returned items have left the wheel and can no longer be cancelled. Items that are added while the caller handles
        the list are returned by the next call.

        If `now` is before the latest time reached, the wheel does not move and returns nothing.

        Costs O(items + cascades + levels), for any jump of the clock. `limit` bounds the items, not the cascades: one
        call may spread a large slot, or several.
        """
        now = _check_int("now", now) - self._origin
        if limit is not None:
            limit = _check_int("limit", limit, at_least=1)
        taken: list[T] = []
        if now < self._reached:
            return taken
        while limit is None or len(taken) < limit:
            if self._due:
                self._take_due(taken, limit)
            elif (index := self._lowest_occupied()) is None or (start := self._levels[index].first_start()) > now:
                self._reach(now)
                break
            else:
                self._open_first_slot(index, start)
        self._count -= len(taken)
        return taken

    def next_expiry(self) -> int | None:
        """Return the time from which `advance` returns items; None if the wheel is empty.

        The time is exact: `advance` returns nothing before it, and at least one item from then on. The time may have
        passed already, if items are left over from a call with `limit` or were added late.

        Costs O(levels). In addition, the first call that needs the earliest timer of a slot reads all its timers.
        """
        if self._due:
            return self._origin + self._reached
        index = self._lowest_occupied()
        if index is None:
            return None
        level = self._levels[index]
        return self._origin + (level.first_start() if index == 0 else level.first_expiry())

    def __len__(self) -> int:
        """Return the number of items in the wheel, including due items. Costs O(1)."""
        return self._count

    def __iter__(self) -> Iterator[tuple[int, T]]:
        """Yield all timers as (time of firing, item), for inspection. Slots are in order; timers within a slot are not.

        The wheel must not change during the iteration.
        """
        slots = [self._due, *(slot for level in self._levels for slot in level.slots())]
        for slot in slots:
            for timer, item in slot.items():
                yield self._origin + expiry_of(timer), item

    def __repr__(self) -> str:
        return (
            f"<TimingWheel of {self._count} at {self.reached}, next {self.next_expiry()}, "
            f"tick {self._tick}, radix {self._radix}, {len(self._levels)} levels>"
        )

    def _level_of(self, expiry: int) -> Level[T]:
        """Return the level for a time that is not reached yet. Levels are created if needed."""
        assert expiry > self._reached, "a due timer has no level"
        index = bisect_right(self._ends, expiry)
        while index == len(self._levels):
            self._add_level()
            index = bisect_right(self._ends, expiry)
        return self._levels[index]

    def _add_level(self) -> None:
        level: Level[T] = Level(self._tick * self._radix ** len(self._levels), self._radix)
        self._levels.append(level)
        self._ends.append(level.turn_to(self._reached))

    def _lowest_occupied(self) -> int | None:
        """Return the index of the lowest occupied level; None if the levels are empty."""
        for index, level in enumerate(self._levels):
            if level:
                return index
        return None

    def _open_first_slot(self, index: int, start: int) -> None:
        """Reach the start of a level's earliest slot, and move its timers one level down. Timers of level 0 are due."""
        slot = self._levels[index].take_first()
        self._reach(start)
        if index > 0:
            self._levels[index - 1].fill(slot)
        else:
            self._due = slot

    def _take_due(self, taken: list[T], limit: int | None) -> None:
        """Move due items to `taken`, up to `limit` items in all."""
        due = self._due
        room = len(due) if limit is None else limit - len(taken)
        if len(due) <= room:
            taken.extend(due.values())
            self._due = {}
            return
        if not isinstance(due, OrderedDict):
            # To find the first entry of a plain dict, Python skips all entries that were removed before it, each time.
            self._due = due = OrderedDict(due)
        for _ in range(room):
            taken.append(due.popitem(last=False)[1])

    def _reach(self, time: int) -> None:
        """Set the time reached to `time`. No earlier timer may be left in the levels."""
        assert time >= self._reached, "the time must not go back"
        self._reached = time
        for index, end in enumerate(self._ends):
            if time < end:
                break
            self._ends[index] = self._levels[index].turn_to(time)


def round_up(time: int, tick: int) -> int:
    """Return the first tick at or after `time`. The wheel rounds only here, and up, so it is never early."""
    return -(-time // tick) * tick


def _check_int(name: str, value: object, at_least: int | None = None) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number (int), not {reprlib.repr(value)} ({type(value).__name__})")
    if at_least is not None and value < at_least:
        raise ValueError(f"{name} must be at least {at_least}, not {value}")
    return int(value)
