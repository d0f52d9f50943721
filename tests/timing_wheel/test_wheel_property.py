"""Any sequence of calls returns the same items in the same order at the same time as a sorted list."""

from dataclasses import dataclass

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from timing_wheel import Timer, TimingWheel
from timing_wheel.timer import expiry_of

pytestmark = pytest.mark.property


@dataclass(order=True)
class Entry:
    """A timer of the model. Entries sort in firing order."""

    fires_at: int
    number: int


class WheelAgainstSortedList(RuleBasedStateMachine):
    """Compares the wheel with a sorted list. The item of each timer is its sequence number."""

    @initialize(
        start=st.sampled_from([0, -1, 63, 64, 4_095, 262_143, 1_700_000_000_000]) | st.integers(-(10**6), 10**6),
        tick=st.sampled_from([1, 1, 2, 7, 10, 64]),
        radix=st.sampled_from([2, 3, 4, 10, 64, 256]),
    )
    def make(self, start: int, tick: int, radix: int) -> None:
        self.wheel: TimingWheel[int] = TimingWheel(start, tick=tick, radix=radix)
        self.tick = tick
        self.radix = radix
        self.origin = start - start % tick
        self.reached = start
        self.waiting: list[Entry] = []
        self.timers: dict[int, Timer] = {}

    def _add(self, time: int) -> None:
        number = len(self.timers)
        fires_at = self.reached
        if time > self.reached:
            fires_at = next(at for at in range(time, time + self.tick) if at % self.tick == 0)
        self.timers[number] = self.wheel.add(time, number)
        self.waiting.append(Entry(fires_at, number))
        self.waiting.sort()

    def _advance(self, now: int, limit: int | None) -> None:
        expected: list[Entry] = []
        if now >= self.reached:
            expected = [entry for entry in self.waiting if entry.fires_at <= now][:limit]
            full = limit is not None and len(expected) == limit
            self.reached = max(self.reached, expected[-1].fires_at if full else now)
        assert self.wheel.advance(now, limit=limit) == [entry.number for entry in expected]
        del self.waiting[: len(expected)]

    def _edge(self, level: int, slots: int) -> int:
        """Return the start of the current slot of a level, or of a slot ``slots`` slots later."""
        span: int = self.tick * self.radix**level
        return self.origin + ((self.reached - self.origin) // span + slots) * span

    @rule(delay=st.integers(-100, 5_000))
    def add_near(self, delay: int) -> None:
        self._add(self.reached + delay)

    @rule(delay=st.integers(0, 10**13))
    def add_anywhere(self, delay: int) -> None:
        self._add(self.reached + delay)

    @rule(level=st.integers(0, 5), slots=st.integers(0, 3), step=st.integers(-1, 1))
    def add_at_an_edge(self, level: int, slots: int, step: int) -> None:
        self._add(self._edge(level, slots) + step)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), step=st.integers(-1, 1))
    def add_near_another_timer(self, data: st.DataObject, step: int) -> None:
        self._add(data.draw(st.sampled_from(self.waiting)).fires_at + step)

    @precondition(lambda self: self.timers)
    @rule(data=st.data())
    def cancel_any(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(range(len(self.timers))))
        waits = any(entry.number == number for entry in self.waiting)
        assert self.wheel.cancel(self.timers[number]) == waits
        self.waiting = [entry for entry in self.waiting if entry.number != number]

    @precondition(lambda self: self.waiting)
    @rule()
    def cancel_the_next(self) -> None:
        assert self.wheel.cancel(self.timers[self.waiting.pop(0).number])

    @rule(
        step=st.integers(0, 200) | st.integers(0, 10**6) | st.integers(0, 10**13),
        limit=st.none() | st.integers(1, 4),
    )
    def advance_by(self, step: int, limit: int | None) -> None:
        self._advance(self.reached + step, limit)

    @precondition(lambda self: self.waiting)
    @rule(step=st.integers(-1, 1), limit=st.none() | st.integers(1, 2))
    def advance_to_about_the_next_expiry(self, step: int, limit: int | None) -> None:
        self._advance(self.waiting[0].fires_at + step, limit)

    @rule(level=st.integers(0, 5), step=st.integers(-1, 1))
    def advance_to_about_an_edge(self, level: int, step: int) -> None:
        self._advance(self._edge(level, 1) + step, None)

    @rule(step=st.integers(1, 10**7), limit=st.none() | st.integers(1, 2))
    def step_back(self, step: int, limit: int | None) -> None:
        self._advance(self.reached - step, limit)

    @invariant()
    def the_wheel_agrees_with_the_list(self) -> None:
        assert self.wheel.reached == self.reached
        assert len(self.wheel) == len(self.waiting)
        assert self.wheel.next_expiry() == (self.waiting[0].fires_at if self.waiting else None)
        assert sorted(self.wheel) == [(e.fires_at, e.number) for e in self.waiting]

    @invariant()
    def each_timer_is_in_the_slot_of_its_expiry(self) -> None:
        wheel = self.wheel
        for timer in wheel._due:
            assert expiry_of(timer) <= wheel._reached
        earlier_levels_end = wheel._reached
        for level, end in zip(wheel._levels, wheel._ends, strict=True):
            assert wheel._reached < end
            occupied = 0
            for number, slot in level._slots.items():
                assert slot
                assert all(expiry_of(timer) // level.span == number for timer in slot)
                assert all(earlier_levels_end <= expiry_of(timer) < end for timer in slot)
                assert all(expiry_of(timer) > wheel._reached for timer in slot)
                occupied |= 1 << (number - level._first_number)
            assert level._occupied == occupied
            assert set(level._heaps) <= set(level._slots)
            earlier_levels_end = end

    def teardown(self) -> None:
        if not hasattr(self, "wheel"):
            return
        while (wake := self.wheel.next_expiry()) is not None:
            self._advance(wake - 1, None)
            self._advance(wake, None)
        assert self.waiting == []


TestWheelAgainstSortedList = WheelAgainstSortedList.TestCase
TestWheelAgainstSortedList.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
