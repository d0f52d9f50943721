"""The hierarchical timing wheel: where a timer is kept, and when it comes out.

After Varghese and Lauck, "Hashed and hierarchical timing wheels" (SOSP 1987), scheme 7. Levels made
on demand and no visits to empty slots are from the timer of Kafka's purgatory, the bits of occupied
slots and the rounding up from tokio's.
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
    """Keeps items until their time; `advance` hands out what is due.

    Times are absolute ints in one unit of the caller's choice, say milliseconds since 1970; they
    may be negative. `now` is the time at the start, `tick` the resolution in the same unit, `radix`
    the number of slots per level.

    A slot of level k is `tick * radix**k` wide, and level k holds what is due within the present
    slot of level k + 1. Slots are counted from the start. Started at 0 with tick 1 and radix 10, a
    wheel that has reached 234 keeps what is due at

        238   in level 0, slot 238:             within the present ten
        251   in level 1, slot 25 (250 to 259): within the present hundred
        700   in level 2, slot 7  (700 to 799): within the present thousand
        9000  in level 3, slot 9, made on demand

    So whatever is in a level is due before anything in the levels above it, and the earliest
    occupied slot of the lowest occupied level is the next to be opened. Opening one spreads its
    timers over the level below (a cascade), and on level 0 they are due.

    What counts as now is the furthest time *reached*. A step back of the clock changes nothing: the
    wheel waits until the clock has caught up.

    Raises `TypeError` for a time that is not an int (bools and floats are not), `ValueError` for a
    tick below 1 or a radix below 2; always before anything has changed.

    Not safe to share between threads without a lock. The wheel never calls, compares or hashes an
    item, so nothing can call back into it from inside one of its methods.
    """

    __slots__ = ("_count", "_due", "_ends", "_levels", "_origin", "_radix", "_reached", "_tick")

    def __init__(self, now: int, *, tick: int = 1, radix: int = 64) -> None:
        now = _check_int("now", now)
        self._tick = _check_int("tick", tick, at_least=1)
        self._radix = _check_int("radix", radix, at_least=2)
        # Inside, time is counted from the last tick at or before the start. It is never negative
        # then; a turn that contains -1 would end at 0 on every level, however many there are.
        self._origin = now - now % self._tick
        self._reached = now - self._origin
        self._count = 0
        # Due at `_reached`, in the order of handing out.
        self._due: dict[Timer, T] = {}
        self._levels: list[Level[T]] = []
        # The first time after each level's present turn, ascending.
        # Invariant: a timer not yet due is in the first level with expiry < end.
        self._ends: list[int] = []
        self._add_level()

    @property
    def reached(self) -> int:
        """The furthest time reached: what `add` and `advance` go by."""
        return self._origin + self._reached

    def add(self, time: int, item: T) -> Timer:
        """Keep `item` until `time`; the answer is for `cancel`. O(levels), however full it is.

        A time between two ticks counts as the tick after it. A time that has been reached is due at
        once: the next `advance` hands it out before everything later.
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
        """Forget a timer and its item. O(levels).

        True if that keeps the item from being handed out; false if it was handed out or cancelled
        before, or is not of this wheel.
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
        """Take out and return what is due at `now`, in order of tick, first added first in a tick.

        At most `limit` items (None: all; at least 1). What is over stays due, can be cancelled, and
        is handed out by the next calls. A full list means that the wheel has only reached the tick
        of the last item in it, so what is added next still finds its place in the order. A shorter
        or empty one means that `now` is reached and nothing more is due.

        What is returned has left the wheel: it cannot be cancelled any more, and what is added while
        the list is worked off is for the next call.

        A `now` before the furthest time reached moves nothing and returns nothing.

        Costs O(items + cascades + levels), however far the clock has jumped. `limit` bounds the
        items, not the cascades: one call may have to spread a large slot, or several.
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
        """When `advance` next has something to hand out; None if the wheel is empty.

        Exact: `advance` returns nothing before that time, and something from then on. It may have
        passed already, if items are left over from a call with `limit` or were added late.

        Costs O(levels), and once per slot a look at all its timers.
        """
        if self._due:
            return self._origin + self._reached
        index = self._lowest_occupied()
        if index is None:
            return None
        level = self._levels[index]
        return self._origin + (level.first_start() if index == 0 else level.first_expiry())

    def __len__(self) -> int:
        """The number of items in the wheel, due ones included. O(1)."""
        return self._count

    def __iter__(self) -> Iterator[tuple[int, T]]:
        """All timers as (time of firing, item), for looking at; sorted only slot by slot.

        The wheel must not be changed meanwhile.
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
        """The level for a time that is not reached yet; made if there is none."""
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
        """The index of the lowest occupied level."""
        for index, level in enumerate(self._levels):
            if level:
                return index
        return None

    def _open_first_slot(self, index: int, start: int) -> None:
        """Move to the start of a level's earliest slot, and its timers down a level or out."""
        slot = self._levels[index].take_first()
        self._reach(start)
        if index > 0:
            self._levels[index - 1].fill(slot)
        else:
            self._due = slot

    def _take_due(self, taken: list[T], limit: int | None) -> None:
        """Move due items to `taken`, until it holds `limit`."""
        due = self._due
        room = len(due) if limit is None else limit - len(taken)
        if len(due) <= room:
            taken.extend(due.values())
            self._due = {}
            return
        if not isinstance(due, OrderedDict):
            # Taking from the front of a plain dict skips all that was taken before, every time.
            self._due = due = OrderedDict(due)
        for _ in range(room):
            taken.append(due.popitem(last=False)[1])

    def _reach(self, time: int) -> None:
        """Move on to `time`, at which nothing earlier may be left."""
        assert time >= self._reached, "time went back"
        self._reached = time
        for index, end in enumerate(self._ends):
            if time < end:
                break
            self._ends[index] = self._levels[index].turn_to(time)


def round_up(time: int, tick: int) -> int:
    """The first tick at or after `time`. The only rounding there is: up, so never early."""
    return -(-time // tick) * tick


def _check_int(name: str, value: object, at_least: int | None = None) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number (int), not {reprlib.repr(value)} ({type(value).__name__})")
    if at_least is not None and value < at_least:
        raise ValueError(f"{name} must be at least {at_least}, not {value}")
    return int(value)
