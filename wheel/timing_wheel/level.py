"""One level of the wheel: slots of one width, with a bit for each that is occupied.

A level covers one turn: the `radix` slots that make up one slot of the level above. Slots are
numbered from the wheel's start, `expiry // span`, so nothing wraps. What goes where and when is for
the wheel.
"""

from collections import defaultdict
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from timing_wheel.timer import TIMERS_PER_UNIT, Timer, expiry_of

T = TypeVar("T")


class Level(Generic[T]):
    """The slots of one width.

    `span` is the width of a slot in units of time. A new level covers no turn yet.
    """

    __slots__ = ("_first_number", "_heaps", "_occupied", "_radix", "_slots", "_width", "span")

    def __init__(self, span: int, radix: int) -> None:
        self.span = span
        self._width = span * TIMERS_PER_UNIT
        self._radix = radix
        # A plain dict per slot keeps the order of adding, forgets a timer in O(1), and is left
        # alone by the garbage collector as long as the items are nothing it must follow.
        self._slots: dict[int, dict[Timer, T]] = {}
        # Bit i stands for slot `_first_number + i`.
        # Invariant: set exactly for the keys of `_slots`, and no slot in there is empty.
        self._occupied = 0
        # The timers of a slot as a heap, from the moment its earliest expiry is asked for.
        # Invariant: holds every timer of the slot, and maybe some that were cancelled.
        self._heaps: dict[int, list[Timer]] = {}
        self._first_number = 0

    def __bool__(self) -> bool:
        return self._occupied != 0

    def turn_to(self, position: int) -> int:
        """Cover the turn that contains `position`, and say when it ends.

        The turn that is left must be empty.
        """
        assert not self._slots, "a turn was left that still had timers"
        turn = self.span * self._radix
        self._first_number = position // turn * self._radix
        return self._first_number * self.span + turn

    def put(self, timer: Timer, item: T) -> None:
        """Keep a timer of the present turn."""
        number = timer // self._width
        slot = self._slots.get(number)
        if slot is None:
            self._slots[number] = {timer: item}
            self._occupied |= 1 << (number - self._first_number)
            return
        slot[timer] = item
        if number in self._heaps:
            self._push(number, timer)

    def fill(self, slot: dict[Timer, T]) -> None:
        """Take over the timers of the slot of the level above that has just been turned to."""
        assert not self._slots, "a slot was opened before those below it were done with"
        width = self._width
        slots: defaultdict[int, dict[Timer, T]] = defaultdict(dict)
        for timer, item in slot.items():
            slots[timer // width][timer] = item
        slots.default_factory = None
        self._slots = slots
        for number in slots:
            self._occupied |= 1 << (number - self._first_number)

    def remove(self, timer: Timer) -> bool:
        """Forget a timer of the present turn; false if it is not here."""
        number = timer // self._width
        slot = self._slots.get(number)
        if slot is None or timer not in slot:
            return False
        del slot[timer]
        if not slot:
            self._drop(number)
        return True

    def first_start(self) -> int:
        """When the earliest occupied slot starts. The level must not be empty."""
        return self._earliest_occupied() * self.span

    def first_expiry(self) -> int:
        """The earliest expiry. The level must not be empty.

        A heap of the slot is made when it is first asked about, so that asking again after each
        cancel is O(log n) in the slot's timers; looking at all of them would be O(n).
        """
        number = self._earliest_occupied()
        slot = self._slots[number]
        heap = self._heaps.get(number)
        if heap is None:
            heap = self._heaps[number] = list(slot)
            heapify(heap)
        while heap[0] not in slot:
            heappop(heap)
        return expiry_of(heap[0])

    def take_first(self) -> dict[Timer, T]:
        """Take out the earliest occupied slot, its timers in the order of adding."""
        number = self._earliest_occupied()
        slot = self._slots[number]
        self._drop(number)
        return slot

    def slots(self) -> list[dict[Timer, T]]:
        """The occupied slots, earliest first."""
        return [self._slots[number] for number in sorted(self._slots)]

    def _earliest_occupied(self) -> int:
        lowest_bit = self._occupied & -self._occupied
        return self._first_number + lowest_bit.bit_length() - 1

    def _push(self, number: int, timer: Timer) -> None:
        heap = self._heaps[number]
        # Cancelled timers must not pile up where as many are added as are cancelled.
        if len(heap) > 2 * len(self._slots[number]) + 64:
            del self._heaps[number]
        else:
            heappush(heap, timer)

    def _drop(self, number: int) -> None:
        del self._slots[number]
        if self._heaps:
            self._heaps.pop(number, None)
        self._occupied ^= 1 << (number - self._first_number)
