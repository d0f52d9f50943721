"""A duration is a timedelta or a number of seconds. All arguments of this kind are checked by one function."""

from datetime import timedelta
from typing import Any

import pytest

from tickwheel import InvalidArgument
from tickwheel.model import validation
from tickwheel.tasks import Retry, RetryLater, TaskApp
from tickwheel.tasks.schedule_times import Every

pytestmark = pytest.mark.unit

HOUR_MS = 3_600_000


def send(user: int = 1) -> None: ...


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (timedelta(seconds=1.5), 1_500),
        (15, 15_000),
        (1.5, 1_500),
        (0.1, 100),
        (0, 0),
        (-0.0, 0),
        (0.000_4, 1),
        (1.000_001, 1_001),
        (3_600, HOUR_MS),
    ],
)
def test_a_duration_in_seconds_is_rounded_up_to_the_millisecond(value: float, ms: int) -> None:
    assert validation.duration_ms("delay", value, 0, HOUR_MS) == ms
    assert validation.duration("delay", value, 0, HOUR_MS) == validation.as_timedelta(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "delay must be a datetime.timedelta or a number of seconds, not bool True"),
        ("15m", "delay must be a datetime.timedelta or a number of seconds, not str '15m'"),
        (None, "delay must be a datetime.timedelta or a number of seconds, not NoneType None"),
        (float("nan"), "delay must be from 0 s to 1 hour, not nan s"),
        (float("inf"), "delay must be from 0 s to 1 hour, not inf s"),
        (-1, "delay must be from 0 s to 1 hour, not -1 s"),
        (-1e-9, "delay must be from 0 s to 1 hour, not -1e-09 s"),
        (3_600.001, "delay must be from 0 s to 1 hour, not 3600.001 s"),
        (10**30, "delay must be from 0 s to 1 hour, not 1000000000000000000000000000000 s"),
        (timedelta(days=1), "delay must be from 0 s to 1 hour, not 1 day"),
    ],
)
def test_an_error_names_the_value_and_what_is_allowed_in_plain_units(value: Any, text: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        validation.duration_ms("delay", value, 0, HOUR_MS)
    assert str(refused.value) == text


def test_the_options_of_an_app_accept_seconds() -> None:
    app = TaskApp("redis://localhost", timeout=2, clock_guard=0.5)
    task = app.task(time_limit=20, lease=45, retry=Retry(first=0.5, most=60))(send)
    assert task.time_limit == timedelta(seconds=20)
    assert task.with_options(lease=1.5).message((), {}, delay=900).delay == 900
    assert app.queue("mail", long_poll=0.25, lease=10, backoff=0.1).long_poll == 0.25
    assert app.every(60, task, grace=5).times.text == Every(timedelta(minutes=1)).text
    assert RetryLater(1.5).delay == timedelta(seconds=1.5)


def test_an_interval_of_a_schedule_in_seconds_is_whole() -> None:
    app = TaskApp("redis://localhost")
    with pytest.raises(InvalidArgument, match=r"interval must be a whole number of seconds, not 1500 ms"):
        app.every(1.5, app.task(send))


def test_a_missing_delay_of_a_call_is_refused_instead_of_running_the_call_now() -> None:
    task: Any = TaskApp("redis://localhost").task(send)
    with pytest.raises(
        InvalidArgument, match=r"delay must be a datetime\.timedelta or a number of seconds, not NoneType"
    ):
        task.later(None)
