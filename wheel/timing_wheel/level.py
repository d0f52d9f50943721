"""One level of the wheel: slots of one width, with a bit for each occupied slot.

A level covers one turn: the `radix` slots that make up one slot of the level above. Slots are numbered from the wheel's
origin, `expiry // span`, so numbers never wrap around. The wheel decides which timers move to which level, and when.
"""

from collections import defaultdict
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from timing_wheel.timer import TIMERS_PER_UNIT, Timer, expiry_of

T = TypeVar("T")


class Level(Generic[T]):
    """The slots of one width.

    `span` is the width of a slot in units of time. A new level covers no turn until `turn_to` is called.
    """

    __slots__ = ("_first_number", "_heaps", "_occupied", "_radix", "_slots", "_width", "span")

    def __init__(self, span: int, radix: int) -> None:
        self.span = span
        self._width = span * TIMERS_PER_UNIT
        self._radix = radix
        # A plain dict for each slot keeps the order in which timers were added, and deletes a timer in O(1). Up to
        # Python 3.13, the garbage collector does not track a dict of simple objects such as int or bytes.
        self._slots: dict[int, dict[Timer, T]] = {}
        # Bit i stands for slot `_first_number + i`.
        # Invariant: the bits are set exactly for the keys of `_slots`, and no slot in `_slots` is empty.
        self._occupied = 0
        # The timers of a slot as a heap, created when `first_expiry` first reads the slot.
        # Invariant: a heap contains every timer of its slot, and maybe some that were cancelled.
        self._heaps: dict[int, list[Timer]] = {}
        self._first_number = 0

    def __bool__(self) -> bool:
        return self._occupied != 0

    def turn_to(self, position: int) -> int:
        """Cover the turn that contains `position`, and return the end of that turn.

        The previous turn must be empty.
        """
        assert not self._slots, "the previous turn still has timers"
        turn = self.span * self._radix
        self._first_number = position // turn * self._radix
        return self._first_number * self.span + turn

    def put(self, timer: Timer, item: T) -> None:
        """Add a timer of the current turn."""
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
        """Add the timers of a slot of the level above: the slot that is the current turn of this level."""
        assert not self._slots, "a slot of the level above was moved to a level that still has timers"
        width = self._width
        slots: defaultdict[int, dict[Timer, T]] = defaultdict(dict)
        for timer, item in slot.items():
            slots[timer // width][timer] = item
        slots.default_factory = None
        self._slots = slots
        for number in slots:
            self._occupied |= 1 << (number - self._first_number)

    def remove(self, timer: Timer) -> bool:
        """Remove a timer of the current turn. Return false if the level does not have the timer."""
        number = timer // self._width
        slot = self._slots.get(number)
        if slot is None or timer not in slot:
            return False
        del slot[timer]
        if not slot:
            self._drop(number)
        return True

    def first_start(self) -> int:
        """Return the start of the earliest occupied slot. The level must not be empty."""
        return self._earliest_occupied() * self.span

    def first_expiry(self) -> int:
        """Return the earliest expiry. The level must not be empty.

        The first call for a slot creates a heap of the n timers in the slot. So a later call costs O(log n), even if a
        timer was cancelled before each call. Without the heap, each call would scan the slot in O(n).
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
        """Remove and return the earliest occupied slot. Its timers are in the order in which they were added."""
        number = self._earliest_occupied()
        slot = self._slots[number]
        self._drop(number)
        return slot

    def slots(self) -> list[dict[Timer, T]]:
        """Return the occupied slots, earliest first."""
        return [self._slots[number] for number in sorted(self._slots)]

    def _earliest_occupied(self) -> int:
        lowest_bit = self._occupied & -self._occupied
        return self._first_number + lowest_bit.bit_length() - 1

    def _push(self, number: int, timer: Timer) -> None:
        heap = self._heaps[number]
        # Bound the number of cancelled timers in the heap, for programs that cancel as many timers as they add.
        if len(heap) > 2 * len(self._slots[number]) + 64:
            del self._heaps[number]
        else:
            heappush(heap, timer)

    def _drop(self, number: int) -> None:
        del self._slots[number]
        if self._heaps:
            self._heaps.pop(number, None)
        self._occupied ^= 1 << (number - self._first_number)
