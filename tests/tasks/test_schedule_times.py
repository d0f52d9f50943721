"""When schedules fire: cron expressions in time zones with daylight saving, and fixed intervals."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings, strategies as st

from tickwheel.errors import InvalidArgument
from tickwheel.tasks.schedule_times import Cron, Every, FireTimes

pytestmark = pytest.mark.unit

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"


def following(times: FireTimes, moment: datetime, count: int) -> list[datetime]:
    """Return the next ``count`` times after a moment."""
    moments = []
    for _ in range(count):
        moment = times.next_after(moment)
        moments.append(moment)
    return moments


def local(zone: str, *moment: int, fold: int = 0) -> datetime:
    """Return a local time in UTC. Local times that occur twice do not compare equal otherwise."""
    time = datetime(*moment, tzinfo=ZoneInfo(zone), fold=fold)  # type: ignore[arg-type,misc]  # year, month, day, …
    return time.astimezone(UTC)


def test_the_hours_of_an_expression_are_in_its_time_zone() -> None:
    times = following(Cron("30 9 * * MON-FRI", BERLIN), local(BERLIN, 2026, 3, 26, 12), 3)
    # A Friday in winter, then a Monday and a Tuesday in summer.
    assert times == [
        datetime(2026, 3, 27, 8, 30, tzinfo=UTC),
        *(datetime(2026, 3, d, 7, 30, tzinfo=UTC) for d in (30, 31)),
    ]
    assert {time.tzinfo for time in times} == {UTC}


@pytest.mark.parametrize(
    ("times", "text", "label"),
    [
        (Cron("30  9 * * mon-fri", BERLIN), "cron 30 9 * * MON-FRI Europe/Berlin", "30 9 * * MON-FRI, Europe/Berlin"),
        (Every(timedelta(seconds=5)), "every 0:00:05", "every 5 s"),
        (Every(timedelta(minutes=90)), "every 1:30:00", "every 90 min"),
        (Every(timedelta(days=1)), "every 1 day, 0:00:00", "every 1 day"),
    ],
    ids=["cron", "seconds", "minutes", "day"],
)
def test_times_have_a_text_that_is_stored_and_a_label_for_people(times: FireTimes, text: str, label: str) -> None:
    assert (times.text, times.label) == (text, label)


@pytest.mark.parametrize(
    ("zone", "day", "resumes"),
    [(BERLIN, (2026, 3, 29), local(BERLIN, 2026, 3, 29, 3)), (NEW_YORK, (2026, 3, 8), local(NEW_YORK, 2026, 3, 8, 3))],
    ids=["berlin", "new-york"],
)
def test_a_time_skipped_in_spring_fires_once_when_the_clock_moves_forward(
    zone: str, day: tuple[int, int, int], resumes: datetime
) -> None:
    before = local(zone, *day) - timedelta(hours=12)
    assert following(Cron("30 2 * * *", zone), before, 2) == [resumes, local(zone, *day[:2], day[2] + 1, 2, 30)]


@pytest.mark.parametrize(
    ("zone", "day", "clock_time"),
    [(BERLIN, (2026, 10, 25), (2, 30)), (NEW_YORK, (2026, 11, 1), (1, 30))],
    ids=["berlin", "new-york"],
)
def test_a_time_repeated_in_autumn_fires_the_first_time_only(
    zone: str, day: tuple[int, int, int], clock_time: tuple[int, int]
) -> None:
    hour, minute = clock_time
    times = Cron(f"{minute} {hour} * * *", zone)
    first, second = (local(zone, *day, hour, minute, fold=fold) for fold in (0, 1))
    # This day has 25 hours.
    next_day = first + timedelta(hours=25)
    assert following(times, first - timedelta(hours=1), 2) == [first, next_day]
    # The result is the same in the second of the two hours.
    for moment in (second - timedelta(minutes=20), second, second + timedelta(minutes=5)):
        assert (times.last_until(moment), times.next_after(moment)) == (first, next_day)


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK])
def test_an_expression_every_30_minutes_fires_every_30_minutes_across_daylight_saving_changes(
    zone: str,
) -> None:
    for begin in (local(zone, 2026, 3, 1), local(zone, 2026, 10, 20)):
        times = following(Cron("*/30 * * * *", zone), begin.astimezone(UTC), 48 * 31)
        assert {later - earlier for earlier, later in pairwise(times)} == {timedelta(minutes=30)}


def test_with_six_fields_the_first_is_seconds() -> None:
    times = following(Cron("*/20 0 12 * * *", "UTC"), datetime(2026, 1, 1, tzinfo=UTC), 4)
    at = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert times == [at, at + timedelta(seconds=20), at + timedelta(seconds=40), at + timedelta(days=1)]


def test_leap_days_and_last_days_of_months_are_supported() -> None:
    assert [(time.year, time.month, time.day) for time in following(Cron("0 0 29 2 *", "UTC"), LONG_AGO, 3)] == [
        (2024, 2, 29), (2028, 2, 29), (2032, 2, 29)
    ]  # fmt: skip
    assert [time.day for time in following(Cron("0 0 L * *", "UTC"), LONG_AGO, 3)] == [31, 29, 31]


def test_if_day_of_month_and_day_of_week_are_both_set_either_matches() -> None:
    times = following(Cron("0 0 13 * FRI", "UTC"), datetime(2026, 1, 1, tzinfo=UTC), 4)
    assert [time.day for time in times] == [2, 9, 13, 16]


LONG_AGO = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("interval", "moment", "then"),
    [
        (timedelta(minutes=5), datetime(2026, 1, 1, 12, 4, 59, 999_999, UTC), datetime(2026, 1, 1, 12, 5, tzinfo=UTC)),
        (timedelta(minutes=5), datetime(2026, 1, 1, 12, 5, tzinfo=UTC), datetime(2026, 1, 1, 12, 10, tzinfo=UTC)),
        (timedelta(hours=6), local(NEW_YORK, 2026, 1, 1, 20), datetime(2026, 1, 2, 6, tzinfo=UTC)),
        (timedelta(days=1), datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)),
        # 1970 began on a Thursday.
        (timedelta(weeks=1), datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 8, tzinfo=UTC)),
        (timedelta(seconds=7), datetime(1970, 1, 1, 0, 0, 13, tzinfo=UTC), datetime(1970, 1, 1, 0, 0, 14, tzinfo=UTC)),
    ],
    ids=["before", "at", "six-hours", "day", "week", "seven-seconds"],
)
def test_an_interval_fires_at_its_multiples_from_any_start(
    interval: timedelta, moment: datetime, then: datetime
) -> None:
    assert Every(interval).next_after(moment) == then


moments = st.timedeltas(timedelta(0), timedelta(days=3_650)).map(lambda since: datetime(2020, 1, 1, tzinfo=UTC) + since)
expressions = st.tuples(
    st.sampled_from(["0", "30", "*/7", "*/30", "5-50/15"]),
    st.sampled_from(["*", "0", "2", "1-3", "*/2", "23", "0,12"]),
    st.sampled_from(["*", "*", "29", "L", "*/2", "13"]),
    st.sampled_from(["*", "*", "3", "10-11"]),
    st.sampled_from(["*", "*", "SUN", "MON-FRI", "5#2"]),
)
schedules = st.one_of(
    st.builds(
        lambda fields, seconds, zone: Cron(" ".join((*seconds, *fields)), zone),
        expressions,
        st.sampled_from([(), (), ("*/20",)]),
        st.sampled_from(["UTC", BERLIN, NEW_YORK, "Africa/Cairo", "Asia/Kolkata", "Pacific/Apia"]),
    ),
    st.builds(lambda seconds: Every(timedelta(seconds=seconds)), st.integers(1, 10_000_000)),
)


@settings(max_examples=300, deadline=None)
@given(schedules, moments, st.floats(0, 1))
def test_every_process_computes_the_same_times_from_any_start(times: FireTimes, moment: datetime, part: float) -> None:
    first, second = following(times, moment, 2)
    between = first + (second - first) * part
    assert moment < first < second
    assert times.last_until(first) == first
    if between < second:
        assert (times.last_until(between), times.next_after(between)) == (first, second)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("0 9 * *", "wrong number of fields"),
        ("@daily", "wrong number of fields"),
        ("", "wrong number of fields"),
        ("60 9 * * *", "bad minute"),
        ("0 24 * * *", "bad hour"),
        ("0 9 32 * *", "bad day-of-month"),
        ("0 9 * FEBRUARY *", "bad month"),
        ("0 9 * * MONDAY", "bad day-of-week"),
        ("0 0 31 2 *", "bad day-of-month"),
        ("*/0 * * * *", "bad minute"),
        ("5-1 * * * *", "bad minute"),
        (9, "a cron expression must be a str, not 9"),
    ],
    ids=[
        "four-fields",
        "alias",
        "empty",
        "minute",
        "hour",
        "day",
        "month",
        "weekday",
        "never",
        "step",
        "range",
        "type",
    ],
)
def test_an_invalid_expression_is_refused_with_the_reason(expression: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Cron(expression, "UTC")


@given(st.text("0123456789*/-,#LW SUNJAé½²", max_size=20))
def test_every_text_is_an_expression_or_refused(text: str) -> None:
    try:
        times = Cron(text, BERLIN)
    except InvalidArgument:
        return
    assert times.next_after(LONG_AGO) > LONG_AGO


@pytest.mark.parametrize(
    "zone", ["Berlin", "", "Europe", "../etc/passwd", "/etc/localtime", "UTC+1", "x" * 65, None, 1]
)
def test_an_unknown_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(InvalidArgument, match="zone"):
        Cron("0 9 * * *", zone)


@pytest.mark.parametrize(
    "interval",
    [
        timedelta(0),
        timedelta(milliseconds=999),
        timedelta(seconds=1.5),
        timedelta(days=366),
        -timedelta(hours=1),
        1.5,
        "60",
    ],
    ids=str,
)
def test_an_interval_lasts_whole_seconds_up_to_a_year(interval: Any) -> None:
    with pytest.raises(InvalidArgument, match="interval must be"):
        Every(interval)
