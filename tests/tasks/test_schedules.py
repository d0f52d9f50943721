"""Declaration of schedules, and the decision about occurrences that are handled late."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tickwheel.errors import InvalidArgument
from tickwheel.tasks import Schedule, TaskApp
from tickwheel.tasks.schedule import Missed
from tickwheel.tasks.schedule_times import Cron, Every

pytestmark = pytest.mark.unit

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)


@pytest.fixture
def app() -> TaskApp:
    app = TaskApp("redis://localhost")

    @app.task(queue="mail", name="digest")
    def digest(kind: str = "daily") -> None: ...

    return app


def hourly(app: TaskApp, missed: Missed, grace: timedelta = MINUTE) -> Schedule:
    return app.every(HOUR, app.tasks["digest"], missed=missed, grace=grace)


@pytest.mark.parametrize("missed", ["last", "all", "skip"])
def test_times_within_the_grace_fire(app: TaskApp, missed: Missed) -> None:
    assert hourly(app, missed).decide(NOON, NOON + MINUTE - SECOND) == (True, NOON + HOUR)


@pytest.mark.parametrize(
    ("missed", "late", "decided"),
    [
        ("all", 59 * MINUTE, (True, NOON + HOUR)),
        ("all", 25 * HOUR, (True, NOON + HOUR)),
        ("last", 59 * MINUTE, (True, NOON + HOUR)),
        # This occurrence does not fire, because a later occurrence is due as well.
        ("last", HOUR, (False, NOON + HOUR)),
        ("last", 25 * HOUR + 30 * MINUTE, (False, NOON + 25 * HOUR)),
        ("skip", 59 * MINUTE, (False, NOON + HOUR)),
        ("skip", 25 * HOUR + 30 * MINUTE, (False, NOON + 25 * HOUR)),
    ],
    ids=["all", "all-day", "last-alone", "last-of-two", "last-of-many", "skip", "skip-many"],
)
def test_of_the_missed_times_all_or_the_last_or_none_fire(
    app: TaskApp, missed: Missed, late: timedelta, decided: tuple[bool, datetime]
) -> None:
    assert hourly(app, missed).decide(NOON, NOON + late) == decided


def test_times_within_the_grace_all_fire_after_a_pause_also_with_a_short_interval(app: TaskApp) -> None:
    schedule = app.every(SECOND, app.tasks["digest"], grace=3 * SECOND)
    assert schedule.decide(NOON, NOON + 10 * SECOND) == (False, NOON + 8 * SECOND)
    assert schedule.decide(NOON + 8 * SECOND, NOON + 10 * SECOND) == (True, NOON + 9 * SECOND)


def test_a_schedule_is_named_by_its_task_and_times_and_its_messages_by_the_schedule_and_the_time(app: TaskApp) -> None:
    schedule = app.cron("0  9 * * mon-fri", app.tasks["digest"], timezone="Europe/Berlin")
    assert app.schedules == {"digest cron 0 9 * * MON-FRI Europe/Berlin": schedule}
    at = schedule.next(NOON)
    assert at == datetime(2026, 11, 24, 8, tzinfo=UTC)
    assert schedule.firing_id(at) == "digest cron 0 9 * * MON-FRI Europe/Berlin@2026-11-24T08:00:00Z"
    assert (schedule.firing(at).due, schedule.firing(at).payload) == (at, b'{"task":"digest","args":{}}')


def test_a_schedule_with_other_times_has_other_occurrences_and_the_same_firings(app: TaskApp) -> None:
    call = app.tasks["digest"].call("weekly")
    schedules = [Schedule("noon", call, Cron("0 12 * * *", "UTC")), Schedule("noon", call, Every(HOUR * 12))]
    assert len({schedule.occurrence_id(NOON) for schedule in schedules}) == 2
    assert len({schedule.firing_id(NOON) for schedule in schedules}) == 1


@pytest.mark.parametrize("name", ["ü" * 48, "a b\n\"'{}[]*:@#/\\", "@2026-11-23T12:00:00Z", "💌"], ids=ascii)
def test_a_schedules_name_may_be_any_text(app: TaskApp, name: str) -> None:
    schedule = app.every(HOUR, app.tasks["digest"], name=name)
    assert schedule.firing_id(NOON) == f"{name}@2026-11-23T12:00:00Z"
    assert len(schedule.occurrence_id(NOON).encode()) <= 128


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"call": lambda task: task.call(kind=7)}, r"Expected `str`, got `int` - at `\$.kind`"),
        ({"call": lambda task: task.call(knd="daily")}, "unexpected keyword argument 'knd'"),
        ({"call": lambda task: task.with_options(id="one").call()}, "leave out the option `id`"),
        ({"call": lambda task: TaskApp("redis://localhost").task(lambda: None).call()}, "belongs to another app"),
        ({"name": ""}, "a schedule's name .* must be 1 to 96 bytes"),
        ({"name": "x" * 97}, "a schedule's name .* must be 1 to 96 bytes"),
        ({"name": "a\0b"}, "NUL"),
        ({"overlap": 1}, "overlap must be True or False"),
        ({"missed": "first"}, "missed must be one of last, all, skip, not 'first'"),
        ({"grace": timedelta(0)}, "grace must be from 1 s to"),
        ({"grace": "60"}, "grace must be a datetime.timedelta or a number of seconds"),
        ({"interval": timedelta(0)}, "interval must be from 1 s to 365 days"),
    ],
    ids=[
        "type",
        "argument",
        "id",
        "app",
        "no-name",
        "long-name",
        "nul",
        "overlap",
        "missed",
        "grace",
        "unit",
        "interval",
    ],
)
def test_a_schedule_is_checked_when_it_is_declared(app: TaskApp, options: dict[str, Any], message: str) -> None:
    call, interval = options.pop("call", lambda task: task), options.pop("interval", HOUR)
    with pytest.raises(InvalidArgument, match=message):
        app.every(interval, call(app.tasks["digest"]), **options)
    assert app.schedules == {}


def test_two_schedules_of_an_app_have_different_names(app: TaskApp) -> None:
    app.every(HOUR, app.tasks["digest"])
    with pytest.raises(
        InvalidArgument, match="two schedules 'digest every 1:00:00' in one app: give one of them another"
    ):
        app.every(HOUR, app.tasks["digest"].call("weekly"))
    app.every(HOUR, app.tasks["digest"].call("weekly"), name="weekly")


def test_no_task_can_use_the_queue_of_the_schedules(app: TaskApp) -> None:
    with pytest.raises(InvalidArgument, match=r"queue 'schedules' is reserved for the app's schedules"):
        app.task(queue="schedules", name="other")(lambda: None)
    TaskApp("redis://localhost", schedule_queue="cron").queue("schedules")
