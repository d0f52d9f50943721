"""Invalid arguments raise an error that names the value and the allowed values, before anything changes."""

from collections.abc import Callable
from decimal import Decimal

import pytest

from timing_wheel import TimingWheel

pytestmark = pytest.mark.unit

NOT_INTS = [1.0, float("nan"), float("inf"), "5", b"5", None, True, False, Decimal(5), [5], 5j]

CALLS: dict[str, Callable[[TimingWheel[str], object], object]] = {
    "time": lambda wheel, value: wheel.add(value, "x"),  # type: ignore[arg-type]
    "now": lambda wheel, value: wheel.advance(value),  # type: ignore[arg-type]
    "timer": lambda wheel, value: wheel.cancel(value),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("value", NOT_INTS, ids=repr)
@pytest.mark.parametrize("name", CALLS)
def test_a_value_that_is_not_an_int_is_refused_and_changes_nothing(name: str, value: object) -> None:
    wheel: TimingWheel[str] = TimingWheel(100)
    wheel.add(50, "due")
    wheel.add(10**6, "later")
    before = (repr(wheel), list(wheel))

    with pytest.raises(TypeError) as refusal:
        CALLS[name](wheel, value)

    message = str(refusal.value)
    assert message == f"{name} must be a whole number (int), not {value!r} ({type(value).__name__})"
    assert (repr(wheel), list(wheel)) == before


@pytest.mark.parametrize("value", [*(value for value in NOT_INTS if value is not None)], ids=repr)
def test_a_limit_that_is_not_an_int_is_refused_before_any_timer_is_taken(value: object) -> None:
    wheel: TimingWheel[str] = TimingWheel(0)
    wheel.add(5, "x")

    with pytest.raises(TypeError, match="limit must be a whole number"):
        wheel.advance(5, limit=value)  # type: ignore[arg-type]

    assert (wheel.reached, len(wheel)) == (0, 1)


@pytest.mark.parametrize("value", [0, -1, -(10**20)])
def test_a_limit_below_one_is_refused_before_any_timer_is_taken(value: int) -> None:
    wheel: TimingWheel[str] = TimingWheel(0)
    wheel.add(5, "x")

    with pytest.raises(ValueError, match=f"limit must be at least 1, not {value}"):
        wheel.advance(5, limit=value)

    assert (wheel.reached, len(wheel)) == (0, 1)


@pytest.mark.parametrize("value", NOT_INTS, ids=repr)
def test_a_wheel_refuses_settings_that_are_not_ints(value: object) -> None:
    with pytest.raises(TypeError, match="now must be a whole number"):
        TimingWheel(value)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="tick must be a whole number"):
        TimingWheel(0, tick=value)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="radix must be a whole number"):
        TimingWheel(0, radix=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("tick", [0, -1, -64])
def test_a_tick_below_one_is_refused(tick: int) -> None:
    with pytest.raises(ValueError, match=f"tick must be at least 1, not {tick}"):
        TimingWheel(0, tick=tick)


@pytest.mark.parametrize("radix", [1, 0, -64])
def test_a_radix_below_two_is_refused(radix: int) -> None:
    with pytest.raises(ValueError, match=f"radix must be at least 2, not {radix}"):
        TimingWheel(0, radix=radix)


def test_an_error_shortens_a_long_value() -> None:
    wheel: TimingWheel[str] = TimingWheel(0)
    with pytest.raises(TypeError) as refusal:
        wheel.add("9" * 100_000, "x")  # type: ignore[arg-type]
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize("timer", [0, -1, 5, 10**40, -(10**40)])
def test_an_int_that_is_not_a_timer_cancels_nothing(timer: int) -> None:
    # The first timer of a process can be 0.
    other: TimingWheel[str] = TimingWheel(0)
    other.add(0, "of another wheel")
    wheel: TimingWheel[str] = TimingWheel(0)
    wheel.add(0, "due")
    wheel.add(5, "later")

    assert not wheel.cancel(timer)  # type: ignore[arg-type]
    assert len(wheel) == 2
