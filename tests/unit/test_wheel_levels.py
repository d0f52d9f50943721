"""The slot of a time, tested at -1, 0 and +1 ms around every edge."""

import pytest
from hypothesis import given, strategies as st

from tickwheel.storage.wheel_levels import (
    HIGHEST,
    LOWEST,
    RADIX,
    is_near,
    lead_time,
    length,
    level_for,
    name,
    number,
    parse,
    start,
)

pytestmark = pytest.mark.unit

LEVELS = range(LOWEST, HIGHEST + 1)
MOMENTS = st.integers(0, 2**48 - 1)


def edges_around(now: int) -> list[int]:
    """Return the times -1, 0 and +1 ms around the starts of the current and the next two slots of each level."""
    starts = [start(level, number(level, now) + n) for level in LEVELS for n in range(3)]
    return [moment for edge in starts for moment in (edge - 1, edge, edge + 1) if moment >= 0]


def test_a_slot_spans_sixty_four_slots_of_the_level_below() -> None:
    assert [length(level) for level in range(6)] == [1, 64, 4_096, 262_144, 16_777_216, 1_073_741_824]


@given(MOMENTS, st.sampled_from(LEVELS))
def test_a_time_lies_within_its_slot(moment: int, level: int) -> None:
    slot = number(level, moment)

    assert start(level, slot) <= moment < start(level, slot + 1)


@given(MOMENTS, st.sampled_from(range(LOWEST + 1, HIGHEST + 1)))
def test_a_slot_covers_exactly_its_children(moment: int, level: int) -> None:
    parent, child = number(level, moment), number(level - 1, moment)

    assert parent * RADIX <= child < (parent + 1) * RADIX
    assert start(level, parent) == start(level - 1, parent * RADIX)


@given(MOMENTS)
def test_a_timer_is_filed_into_a_slot_that_is_not_yet_served_or_on_the_lowest_level(now: int) -> None:
    for moment in edges_around(now):
        level = level_for(moment, now)
        served_from = start(level, number(level, moment)) - lead_time(level)
        assert level == LOWEST or served_from > now, f"level {level} for {moment} at {now}"


@given(MOMENTS)
def test_a_timer_is_filed_on_the_highest_level_that_is_not_yet_served(now: int) -> None:
    for moment in edges_around(now):
        for level in range(level_for(moment, now) + 1, HIGHEST + 1):
            assert start(level, number(level, moment)) - lead_time(level) <= now


@given(MOMENTS, MOMENTS)
def test_past_times_belong_to_the_lowest_level(now: int, ago: int) -> None:
    assert level_for(max(0, now - ago), now) == LOWEST


@given(MOMENTS)
def test_a_slot_of_the_lowest_level_is_read_when_its_timers_are_near(now: int) -> None:
    for moment in edges_around(now):
        served_from = start(LOWEST, number(LOWEST, moment)) - lead_time(LOWEST)
        assert is_near(moment, now) == (served_from <= now)


def test_the_name_of_a_slot_can_be_read() -> None:
    assert parse(name(5, 2**40).encode()) == (5, 2**40)
