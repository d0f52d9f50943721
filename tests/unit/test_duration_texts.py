"""Error texts print durations in their largest whole unit."""

from datetime import timedelta

import pytest

from tickwheel.errors import InvalidArgument
from tickwheel.model import validation

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(0), "0 s"),
        (timedelta(milliseconds=250), "250 ms"),
        (timedelta(microseconds=100), "0.0001 s"),
        (timedelta(seconds=-1), "-1 s"),
        (timedelta(minutes=90), "90 min"),
        (timedelta(hours=1), "1 hour"),
        (timedelta(hours=12), "12 hours"),
        (timedelta(days=1), "1 day"),
        (timedelta(days=1825), "1825 days"),
        (timedelta(days=2000, seconds=1), "2000 days"),
        (timedelta.max, "999999999 days"),
        (timedelta.min, "-999999999 days"),
    ],
)
def test_a_duration_is_printed_in_its_largest_whole_unit(duration: timedelta, text: str) -> None:
    assert validation.describe_duration(duration) == text


@pytest.mark.parametrize(("value", "text"), [(timedelta.max, "999999999 days"), (timedelta(days=-1), "-1 day")])
def test_an_error_prints_the_limits_and_the_value_in_the_same_form(value: timedelta, text: str) -> None:
    with pytest.raises(InvalidArgument) as error:
        validation.duration_ms("delay", value, 1_000, 1825 * 86_400_000)
    assert str(error.value) == f"delay must be from 1 s to 1825 days, not {text}"
