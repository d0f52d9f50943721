"""Times one before, at, and one after every kind of edge: slots and turns of each level, for several radices."""

from collections.abc import Iterator

import pytest

from timing_wheel import TimingWheel
from timing_wheel.wheel import round_up

pytestmark = pytest.mark.unit

RADICES = [2, 3, 7, 10, 64, 256]
TICKS = [1, 7, 64]
LEVELS = 4


def edges(start: int, tick: int, radix: int) -> Iterator[int]:
    """Yield the starts of the first, second and last slot of the current and the next turn, and the end of each turn.

    Turns are counted both from the start of the wheel, as the wheel counts them, and from zero.
    """
    for origin in (start - start % tick, 0):
        for level in range(LEVELS):
            span = tick * radix**level
            turn = span * radix
            for turns_on in (0, 1):
                turn_start = origin + ((start - origin) // turn + turns_on) * turn
                for slot in {0, 1, radix - 1, radix}:
                    yield turn_start + slot * span


def around(times: Iterator[int]) -> set[int]:
    return {time + step for time in times for step in (-1, 0, 1)}


def starts(tick: int, radix: int) -> list[int]:
    """Return start times: ordinary times, and times just before, at and after the end of a turn."""
    turn = tick * radix**3
    return [0, -1, -turn, turn - 1, turn, turn + 1, 1_700_000_000_123]


@pytest.mark.parametrize("tick", TICKS)
@pytest.mark.parametrize("radix", RADICES)
def test_a_single_timer_fires_exactly_at_its_tick(radix: int, tick: int) -> None:
    for start in starts(tick, radix):
        for time in around(edges(start, tick, radix)):
            wheel: TimingWheel[int] = TimingWheel(start, tick=tick, radix=radix)
            wheel.add(time, time)
            fires_at = start if time <= start else round_up(time, tick)

            assert wheel.next_expiry() == fires_at, (start, time)
            assert wheel.advance(fires_at - 1) == [], (start, time)
            assert wheel.advance(fires_at) == [time], (start, time)


@pytest.mark.parametrize("tick", TICKS)
@pytest.mark.parametrize("radix", RADICES)
def test_many_timers_fire_each_at_its_tick(radix: int, tick: int) -> None:
    for start in starts(tick, radix):
        wheel: TimingWheel[int] = TimingWheel(start, tick=tick, radix=radix)
        expected: dict[int, list[int]] = {}
        for time in around(edges(start, tick, radix)):
            wheel.add(time, time)
            fires_at = start if time <= start else round_up(time, tick)
            expected.setdefault(fires_at, []).append(time)

        fired = {}
        while (wake := wheel.next_expiry()) is not None:
            assert wheel.advance(wake - 1) == []
            fired[wake] = wheel.advance(wake)

        assert fired == expected
        assert list(fired) == sorted(fired)


@pytest.mark.parametrize("tick", TICKS)
@pytest.mark.parametrize("radix", RADICES)
def test_a_wheel_stopped_at_any_edge_continues_from_there(radix: int, tick: int) -> None:
    start = 1_700_000_000_123
    stops = sorted(stop for stop in around(edges(start, tick, radix)) if stop > start)
    wheel: TimingWheel[int] = TimingWheel(start, tick=tick, radix=radix)
    for stop in stops:
        assert wheel.advance(stop - 1) == []
        timer = wheel.add(stop, stop)
        fires_at = round_up(stop, tick)
        assert wheel.next_expiry() == fires_at
        if fires_at == stop:
            assert wheel.advance(stop) == [stop]
        else:
            assert wheel.advance(stop) == []
            assert wheel.cancel(timer)


@pytest.mark.parametrize("tick", [1, 2, 7, 10, 64])
def test_times_are_rounded_up_to_the_tick_and_never_beyond(tick: int) -> None:
    for edge in (-1_000 * tick, -tick, 0, tick, 64 * tick, 1_700_000_000_000 // tick * tick):
        assert round_up(edge, tick) == edge
        assert round_up(edge - 1, tick) == (edge if tick > 1 else edge - 1)
        assert round_up(edge + 1, tick) == edge + tick
