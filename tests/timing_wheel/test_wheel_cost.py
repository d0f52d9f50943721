"""The cost of the wheel, measured as work instead of time: executed lines, moved timers, retained memory."""

import gc
import random
import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from timing_wheel import TimingWheel
from timing_wheel.level import Level
from timing_wheel.timer import Timer, new_timer

pytestmark = pytest.mark.unit

TEN_YEARS_MS = 10 * 365 * 24 * 3600 * 1000


def lines_run(action: Callable[[], object]) -> int:
    """Return the number of lines of the library that one action executes."""
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        if not frame.f_globals["__name__"].startswith("timing_wheel"):
            return None
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return lines


def filled(count: int, span: int) -> TimingWheel[int]:
    dice = random.Random(count)
    wheel: TimingWheel[int] = TimingWheel(0)
    for number in range(count):
        wheel.add(dice.randint(1, span), number)
    return wheel


def test_ten_idle_years_cost_a_step_per_level_at_most() -> None:
    wheel: TimingWheel[str] = TimingWheel(0)
    wheel.cancel(wheel.add(TEN_YEARS_MS, "gone"))
    levels = 7  # 64**6 ms are 2.2 years, 64**7 are 139

    assert lines_run(lambda: wheel.advance(TEN_YEARS_MS)) <= 20 + 10 * levels


def test_a_jump_over_ten_years_to_one_timer_costs_no_more_than_its_cascades() -> None:
    wheel: TimingWheel[str] = TimingWheel(0)
    wheel.add(TEN_YEARS_MS, "far")

    assert lines_run(lambda: wheel.advance(TEN_YEARS_MS)) <= 7 * 100
    assert not wheel


def test_the_next_expiry_is_found_without_a_walk_over_empty_slots() -> None:
    near: TimingWheel[str] = TimingWheel(0)
    near.add(1, "x")
    far: TimingWheel[str] = TimingWheel(0)
    far.add(TEN_YEARS_MS, "x")

    assert lines_run(near.next_expiry) <= 20
    assert lines_run(far.next_expiry) <= 40


@pytest.mark.parametrize("radix", [2, 10, 64])
def test_a_timer_is_moved_less_often_than_there_are_levels(radix: int, monkeypatch: pytest.MonkeyPatch) -> None:
    moves: dict[Timer, int] = {}
    fill = Level.fill

    def counting_fill(level: Level[int], slot: dict[Timer, int]) -> None:
        for timer in slot:
            moves[timer] = moves.get(timer, 0) + 1
        fill(level, slot)

    monkeypatch.setattr(Level, "fill", counting_fill)
    dice = random.Random(1)
    wheel: TimingWheel[int] = TimingWheel(0, radix=radix)
    for number in range(5_000):
        wheel.add(dice.randint(1, radix**4 - 1), number)

    assert len(wheel.advance(radix**4)) == 5_000
    assert max(moves.values()) <= 3


def test_adding_and_firing_cost_the_same_for_each_timer_with_thirty_times_the_timers() -> None:
    span = 100_000
    few, many = 500, 15_000

    lines_of_few = lines_run(lambda: filled(few, span).advance(span))
    lines_of_many = lines_run(lambda: filled(many, span).advance(span))

    assert lines_of_many / many <= lines_of_few / few


def test_cancelling_one_of_many_timers_in_a_slot_costs_the_same_as_cancelling_the_only_one() -> None:
    alone: TimingWheel[int] = TimingWheel(0)
    only = alone.add(1_000, 0)
    crowded: TimingWheel[int] = TimingWheel(0)
    timers = [crowded.add(1_000, number) for number in range(10_000)]

    assert lines_run(lambda: crowded.cancel(timers[5_000])) <= lines_run(lambda: alone.cancel(only))


def test_taking_timers_one_by_one_costs_the_same_for_each_timer_of_a_crowded_tick() -> None:
    wheel: TimingWheel[int] = TimingWheel(0)
    for number in range(20_000):
        wheel.add(5, number)
    wheel.advance(5, limit=1)

    first = lines_run(lambda: wheel.advance(5, limit=1))
    rest = [item for _ in range(19_997) for item in wheel.advance(5, limit=1)]
    last = lines_run(lambda: wheel.advance(5, limit=1))

    assert rest == list(range(2, 19_999))
    assert last <= first


def test_next_expiry_after_each_of_many_cancels_does_not_rescan() -> None:
    # Time-outs are usually cancelled in about the order in which they would fire.
    wheel: TimingWheel[int] = TimingWheel(0)
    timers = [wheel.add(100_000 + number, number) for number in range(20_000)]
    wheel.next_expiry()

    def cancel_and_query() -> None:
        for number in range(10_000):
            wheel.cancel(timers[number])
            assert wheel.next_expiry() == 100_000 + number + 1

    assert lines_run(cancel_and_query) <= 10_000 * 50


@pytest.mark.parametrize("step", [-64, -8, -1, 0, 1, 8, 64, 1_000])
@pytest.mark.parametrize("adds_per_step", [1, 2, 8, 64])
def test_timers_added_in_a_pattern_do_not_share_their_hashes(step: int, adds_per_step: int) -> None:
    # If timers had the same hash, every add and every cancel would search through them.
    hashes = {hash(new_timer(10**12 + step * (n // adds_per_step))) for n in range(2_000)}

    assert len(hashes) == 2_000


def test_the_garbage_collector_does_not_track_timers() -> None:
    wheel: TimingWheel[int] = TimingWheel(0)
    dice = random.Random(7)
    gc.collect()
    before = len(gc.get_objects())
    for number in range(10_000):
        wheel.add(dice.randint(1, 250_000), number)

    assert len(gc.get_objects()) - before < 500


def test_cancelled_timers_free_their_memory_also_between_calls_of_next_expiry() -> None:
    wheel: TimingWheel[bytes] = TimingWheel(0)
    wheel.add(100_000, b"the one that stays")

    def churn(rounds: int) -> None:
        for number in range(rounds):
            timer = wheel.add(100_001 + number % 4_000, bytes(100))
            wheel.next_expiry()
            wheel.cancel(timer)

    churn(1_000)
    tracemalloc.start()
    try:
        churn(20_000)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert size < 100_000
