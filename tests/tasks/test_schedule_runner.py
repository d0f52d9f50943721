"""Recurring tasks under a clock that the test advances: each time fires once, even if processes crash or are late."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tickwheel import Message, Tickwheel
from tickwheel.tasks import TaskApp, current
from tickwheel.tasks.schedule import Missed, Schedule
from tickwheel.tasks.schedule_times import Every
from tickwheel.testing import VirtualClock
from tickwheel.testing.task_tester import TaskTester, open_task_tester
from tickwheel.worker.schedule_runner import OccurrenceOutcome, ScheduleRunner

pytestmark = [pytest.mark.integration, pytest.mark.tickwheel(shards=4, now=datetime(2026, 3, 27, 12, tzinfo=UTC))]

NOON = datetime(2026, 3, 27, 12, tzinfo=UTC)
DAY, HOUR, MINUTE, SECOND = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
LEASE = 5 * SECOND


def declared(**options: Any) -> TaskApp:
    """Return an app whose tasks have no effect; the tests check their messages."""
    app = TaskApp(**options)
    app.queue("work", retention=30 * DAY)
    app.queue("exclusive", exclusive_key="kind")

    @app.task(queue="work", name="digest")
    def digest(kind: str = "daily") -> str:
        return current().message.id

    @app.task(queue="exclusive", name="alone", metadata=["kind"])
    def alone(kind: str = "daily") -> None: ...

    return app


class ScheduledApp:
    """An app in the test's namespace, and a process that runs its schedules."""

    def __init__(self, tester: TaskTester, app: TaskApp, clock: VirtualClock, tickwheel: Tickwheel) -> None:
        self.tester, self.app, self.clock, self.tickwheel = tester, app, clock, tickwheel
        self.outcomes: list[tuple[str, OccurrenceOutcome]] = []
        self.process = ScheduleRunner(app, "process 1", lambda name, outcome: self.outcomes.append((name, outcome)))

    def declare(self, interval: timedelta = HOUR, task: str = "digest", **policies: Any) -> Schedule:
        return self.app.every(interval, self.app.tasks[task], **{"name": "s", **policies})

    def handle_due(self) -> None:
        """Handle all due occurrences, like a process that has just started, and the occurrences that follow."""
        for _ in range(2):
            self.clock.run_due()
            self.process.ensure_occurrences(self.clock.now)

    def fired(self, queue: str = "work") -> list[datetime]:
        """Return the times of the firings in order."""
        exists = queue in [queue_info.name for queue_info in self.tickwheel.queues()]
        return sorted(message.due for message in self.tickwheel.queue(queue).messages()) if exists else []

    def take(self) -> Message:
        """Dequeue the due occurrence like a process that dies afterwards."""
        [taken] = self.tickwheel.queue("schedules").dequeue(lease=LEASE, worker="process 2")
        return taken


@pytest.fixture
def scheduled_app(tickwheel: Tickwheel, tickwheel_clock: VirtualClock) -> Iterator[ScheduledApp]:
    app = declared()
    with open_task_tester(app, tickwheel, tickwheel_clock) as tester:
        yield ScheduledApp(tester, app, tickwheel_clock, tickwheel)
    app.close()


def test_a_schedule_fires_at_each_of_its_times_and_the_task_sees_the_time(scheduled_app: ScheduledApp) -> None:
    scheduled_app.app.cron("30 2 * * *", scheduled_app.app.tasks["digest"], timezone="Europe/Berlin", name="night")
    outcomes = scheduled_app.tester.advance(4 * DAY)
    assert [json.loads(outcome.result or "") for outcome in outcomes] == [
        "night@2026-03-28T01:30:00Z",
        # Daylight saving begins in this night: there is no 2:30.
        "night@2026-03-29T01:00:00Z",
        "night@2026-03-30T00:30:00Z",
        "night@2026-03-31T00:30:00Z",
    ]


def test_no_time_before_the_first_worker_is_missed(scheduled_app: ScheduledApp) -> None:
    scheduled_app.declare(missed="all")
    scheduled_app.handle_due()
    assert scheduled_app.fired() == []
    scheduled_app.clock.advance(HOUR)
    scheduled_app.handle_due()
    assert scheduled_app.fired() == [NOON + HOUR]


def test_a_schedule_fires_again_after_its_queue_was_deleted(scheduled_app: ScheduledApp) -> None:
    scheduled_app.declare(missed="all")
    scheduled_app.handle_due()
    scheduled_app.tickwheel.delete_queue("schedules", purge=True)
    scheduled_app.handle_due()
    scheduled_app.clock.advance(HOUR)
    scheduled_app.handle_due()
    assert scheduled_app.fired() == [NOON + HOUR]


def test_late_firings_do_not_shift_later_times(scheduled_app: ScheduledApp) -> None:
    scheduled_app.declare(MINUTE, missed="all")
    scheduled_app.handle_due()
    for late in (3, 17, 0, 59, 31):
        scheduled_app.clock.set(NOON + (1 + len(scheduled_app.fired())) * MINUTE + late * SECOND)
        scheduled_app.handle_due()
    assert scheduled_app.fired() == [NOON + n * MINUTE for n in range(1, 6)]


def test_many_processes_fire_each_time_once(scheduled_app: ScheduledApp) -> None:
    scheduled_app.declare(MINUTE, missed="all")
    others = [ScheduleRunner(scheduled_app.app) for _ in range(3)]
    for _ in range(20):
        for process in (*others, scheduled_app.process):
            process.ensure_occurrences(scheduled_app.clock.now)
        scheduled_app.clock.advance(MINUTE)
    scheduled_app.handle_due()
    assert scheduled_app.fired() == [NOON + n * MINUTE for n in range(1, 21)]
    assert len(list(scheduled_app.tickwheel.queue("schedules").messages())) == 21


@pytest.mark.parametrize("steps", [0, 1, 2], ids=["before-firing", "after-firing", "after-enqueueing-the-next"])
def test_after_a_process_dies_another_continues_and_each_time_fires_once(
    scheduled_app: ScheduledApp, steps: int
) -> None:
    schedule = scheduled_app.declare()
    scheduled_app.handle_due()
    scheduled_app.clock.advance(HOUR)
    scheduled_app.take()
    if steps > 0:
        scheduled_app.app.enqueue(schedule.call.task, schedule.firing(NOON + HOUR))
    if steps > 1:
        scheduled_app.tickwheel.queue("schedules").enqueue_many([schedule.occurrence(NOON + 2 * HOUR)])
    scheduled_app.clock.advance(LEASE)
    scheduled_app.handle_due()
    scheduled_app.clock.advance(HOUR)
    scheduled_app.handle_due()
    assert scheduled_app.fired() == [NOON + HOUR, NOON + 2 * HOUR]


def test_a_process_that_wakes_late_changes_nothing(scheduled_app: ScheduledApp) -> None:
    scheduled_app.declare(missed="all")
    scheduled_app.handle_due()
    scheduled_app.clock.advance(HOUR)
    late = scheduled_app.take()
    scheduled_app.clock.advance(LEASE)
    scheduled_app.handle_due()
    scheduled_app.process.handle(late)
    assert scheduled_app.fired() == [NOON + HOUR]
    assert scheduled_app.outcomes == [("s", OccurrenceOutcome.FIRED)]


@pytest.mark.parametrize("behind", [MINUTE, 23 * HOUR], ids=["a-minute", "a-day"])
def test_a_worker_with_a_slow_clock_does_not_fire_again(scheduled_app: ScheduledApp, behind: timedelta) -> None:
    scheduled_app.declare()
    scheduled_app.handle_due()
    for _ in range(24):
        scheduled_app.clock.advance(HOUR)
        scheduled_app.handle_due()
    scheduled_app.process.ensure_occurrences(scheduled_app.clock.now - behind)
    scheduled_app.handle_due()
    assert len(scheduled_app.fired()) == 24


@pytest.mark.parametrize(
    ("missed", "fired"),
    [("all", [1, 2, 3, 4, 5, 6]), ("last", [5, 6]), ("skip", [6])],
    ids=["all", "last", "skip"],
)
def test_after_a_time_without_workers_all_or_the_last_or_none_of_the_missed_times_fire(
    scheduled_app: ScheduledApp, missed: Missed, fired: list[int]
) -> None:
    scheduled_app.declare(missed=missed)
    scheduled_app.handle_due()
    scheduled_app.clock.advance(5 * HOUR + 30 * MINUTE)
    scheduled_app.handle_due()
    scheduled_app.clock.advance(30 * MINUTE)
    scheduled_app.handle_due()
    assert scheduled_app.fired() == [NOON + n * HOUR for n in fired]


@pytest.mark.parametrize(("task", "queue"), [("digest", "work"), ("alone", "exclusive")], ids=["plain", "exclusive"])
def test_without_overlap_a_time_is_skipped_until_the_firing_before_is_finished(
    scheduled_app: ScheduledApp, task: str, queue: str
) -> None:
    scheduled_app.declare(task=task, overlap=False)
    scheduled_app.handle_due()
    scheduled_app.clock.advance(HOUR)
    scheduled_app.handle_due()
    work = scheduled_app.tickwheel.queue(queue)
    # The firing waits, then it runs, then it has failed and waits for its retry.
    for state in ("pending", "running", "invisible"):
        if state == "running":
            [running] = work.dequeue(lease=12 * HOUR)
        if state == "invisible":
            running.fail("boom", retry_in=2 * HOUR)
        scheduled_app.clock.advance(HOUR)
        scheduled_app.handle_due()
        assert [message.state for message in work.messages()] == [state]
    scheduled_app.clock.advance(90 * MINUTE)
    scheduled_app.handle_due()
    [running] = work.dequeue()
    running.complete()
    scheduled_app.clock.advance(30 * MINUTE)
    scheduled_app.handle_due()
    assert scheduled_app.fired(queue)[-1] == NOON + 6 * HOUR
    assert [outcome for _, outcome in scheduled_app.outcomes] == [
        OccurrenceOutcome.FIRED,
        *[OccurrenceOutcome.SKIPPED] * 4,
        OccurrenceOutcome.FIRED,
    ]


@pytest.mark.parametrize("missed", ["last", "skip"])
def test_without_overlap_the_firing_before_is_found_after_a_time_without_workers(
    scheduled_app: ScheduledApp, missed: Missed
) -> None:
    scheduled_app.declare(MINUTE, overlap=False, missed=missed)
    scheduled_app.handle_due()
    scheduled_app.clock.advance(MINUTE)
    scheduled_app.handle_due()
    scheduled_app.clock.advance(DAY + 3 * DAY + 30 * SECOND)
    for _ in range(3):
        scheduled_app.handle_due()
        scheduled_app.clock.advance(MINUTE)
    assert scheduled_app.fired() == [NOON + MINUTE]


def test_without_overlap_the_firing_before_is_found_if_another_process_made_the_next_occurrence(
    scheduled_app: ScheduledApp,
) -> None:
    schedule = scheduled_app.declare(overlap=False)
    scheduled_app.handle_due()
    for n in range(1, 4):
        scheduled_app.clock.advance(HOUR)
        scheduled_app.tickwheel.queue("schedules").enqueue_many([schedule.occurrence(NOON + (n + 1) * HOUR)])
        scheduled_app.handle_due()
    assert scheduled_app.fired() == [NOON + HOUR]


def test_without_overlap_a_later_time_waits_for_the_occurrence_of_a_process_that_died(
    scheduled_app: ScheduledApp,
) -> None:
    scheduled_app.declare(SECOND, overlap=False)
    scheduled_app.handle_due()
    scheduled_app.clock.advance(SECOND)
    scheduled_app.take()
    for _ in range(3):
        scheduled_app.handle_due()
        scheduled_app.clock.advance(SECOND)
    assert scheduled_app.outcomes == []
    scheduled_app.clock.advance(LEASE)
    scheduled_app.handle_due()
    assert scheduled_app.fired() == [NOON + SECOND]
    assert [outcome for _, outcome in scheduled_app.outcomes] == [
        OccurrenceOutcome.FIRED,
        *[OccurrenceOutcome.SKIPPED] * 8,
    ]


def test_without_overlap_a_later_time_waits_for_an_occurrence_that_is_being_retried(
    scheduled_app: ScheduledApp,
) -> None:
    schedule = scheduled_app.declare(overlap=False, missed="all")
    scheduled_app.handle_due()
    scheduled_app.clock.advance(HOUR)
    scheduled_app.take().fail("the queue is blocked", retry_in=90 * MINUTE)
    scheduled_app.tickwheel.queue("schedules").enqueue_many([schedule.occurrence(NOON + 2 * HOUR)])
    scheduled_app.clock.advance(HOUR)
    scheduled_app.handle_due()
    assert scheduled_app.outcomes == []
    scheduled_app.clock.advance(32 * MINUTE)
    for _ in range(2):
        scheduled_app.handle_due()
        scheduled_app.clock.advance(MINUTE)
    assert scheduled_app.fired() == [NOON + HOUR]
    assert [outcome for _, outcome in scheduled_app.outcomes] == [OccurrenceOutcome.FIRED, OccurrenceOutcome.SKIPPED]


def test_a_cancelled_occurrence_does_not_fire_and_later_ones_do(scheduled_app: ScheduledApp) -> None:
    schedule = scheduled_app.declare()
    scheduled_app.handle_due()
    scheduled_app.tickwheel.queue("schedules").cancel(schedule.occurrence_id(NOON + HOUR), "s")
    scheduled_app.clock.advance(HOUR)
    scheduled_app.handle_due()
    scheduled_app.clock.advance(HOUR)
    scheduled_app.handle_due()
    assert scheduled_app.fired() == [NOON + 2 * HOUR]


def test_a_blocked_queue_of_the_task_delays_the_firing_only(scheduled_app: ScheduledApp) -> None:
    scheduled_app.declare()
    scheduled_app.handle_due()
    scheduled_app.app.declared("work").block()
    scheduled_app.clock.advance(HOUR)
    scheduled_app.handle_due()
    scheduled_app.app.declared("work").unblock()
    scheduled_app.clock.advance(2 * SECOND)
    scheduled_app.handle_due()
    assert scheduled_app.fired() == [NOON + HOUR]


def test_during_an_upgrade_each_version_fires_its_own_schedules(scheduled_app: ScheduledApp) -> None:
    scheduled_app.declare()
    scheduled_app.handle_due()
    newer = declared()
    schedule = newer.every(2 * HOUR, newer.tasks["digest"].call("weekly"), name="s")
    newer.move(**scheduled_app.app.where)
    process = ScheduleRunner(newer)
    process.ensure_occurrences(scheduled_app.clock.now)
    # At 13:00 only the older version fires. At 14:00 both versions fire, with the same message id, so there is one
    # message. A version that receives an occurrence of the other version retries it later.
    for _ in range(2):
        scheduled_app.clock.advance(HOUR)
        for order in ((process, scheduled_app.process), (scheduled_app.process, process)):
            for app in order:
                app.fire_due()
            scheduled_app.clock.advance(2 * SECOND)
    assert scheduled_app.fired() == [NOON + HOUR, NOON + 2 * HOUR]
    # Then the older version stops, and its occurrences from 15:00 on are dropped.
    for _ in range(10):
        scheduled_app.clock.advance(30 * MINUTE)
        process.ensure_occurrences(scheduled_app.clock.now)
    assert scheduled_app.fired() == [NOON + HOUR, NOON + 2 * HOUR, NOON + 4 * HOUR, NOON + 6 * HOUR]
    assert schedule.next(scheduled_app.clock.now) == NOON + 8 * HOUR
    newer.close()


def test_times_that_a_schedule_no_longer_has_do_not_fire_and_are_dropped(scheduled_app: ScheduledApp) -> None:
    old = Schedule("s", scheduled_app.app.tasks["digest"].call(), Every(HOUR))
    scheduled_app.app.declared("schedules").enqueue_many([old.occurrence(NOON + HOUR)])
    scheduled_app.declare(2 * HOUR, missed="all")
    scheduled_app.handle_due()
    occurrences = scheduled_app.tickwheel.queue("schedules")
    for wait, state in ((HOUR, "invisible"), (9 * MINUTE, "invisible"), (MINUTE, "completed")):
        scheduled_app.clock.advance(wait)
        scheduled_app.process.fire_due()
        assert occurrences.get(old.occurrence_id(NOON + HOUR), "s").state == state
    assert scheduled_app.outcomes == [("s", OccurrenceOutcome.UNKNOWN)]
    scheduled_app.clock.advance(50 * MINUTE)
    scheduled_app.handle_due()
    assert scheduled_app.fired() == [NOON + 2 * HOUR]


def test_occurrences_of_schedules_that_the_app_lacks_have_one_name_in_the_metrics(scheduled_app: ScheduledApp) -> None:
    scheduled_app.declare()
    removed = [Schedule(f"removed-{n}", scheduled_app.app.tasks["digest"].call(), Every(HOUR)) for n in range(3)]
    scheduled_app.app.declared("schedules").enqueue_many([schedule.occurrence(NOON - HOUR) for schedule in removed])
    scheduled_app.handle_due()
    assert scheduled_app.outcomes == [("(unknown)", OccurrenceOutcome.UNKNOWN)] * 3


def test_apps_of_one_namespace_have_separate_queues(scheduled_app: ScheduledApp) -> None:
    scheduled_app.declare()
    other = declared(schedule_queue="other-schedules")
    other.every(2 * HOUR, other.tasks["digest"], name="other")
    other.move(**scheduled_app.app.where)
    scheduled_app.handle_due()
    ScheduleRunner(other).ensure_occurrences(scheduled_app.clock.now)
    scheduled_app.clock.advance(2 * HOUR)
    scheduled_app.handle_due()
    assert scheduled_app.fired() == [NOON + 2 * HOUR]
    ScheduleRunner(other).ensure_occurrences(scheduled_app.clock.now)
    assert sorted(message.id for message in scheduled_app.tickwheel.queue("work").messages()) == [
        "other@2026-03-27T14:00:00Z", "s@2026-03-27T14:00:00Z"
    ]  # fmt: skip
    other.close()


@pytest.mark.parametrize("payload", [b"order 17", b'{"a":' * 6_000], ids=["text", "nested"])
def test_a_message_that_is_not_an_occurrence_is_errored(scheduled_app: ScheduledApp, payload: bytes) -> None:
    scheduled_app.declare()
    scheduled_app.handle_due()
    queue = scheduled_app.tickwheel.queue("schedules")
    queue.enqueue(payload, id="stray", metadata={"schedule": "s"})
    scheduled_app.handle_due()
    assert queue.get("stray", "s").error.startswith("the payload is not an occurrence of a schedule")


@pytest.mark.parametrize(
    ("at", "id_at", "value", "error"),
    [
        (NOON, NOON + DAY, "s", "is not that of an occurrence of schedule 's'"),
        (NOON, NOON, "other", "is not that of an occurrence of schedule 's'"),
        (datetime(1970, 1, 2, tzinfo=UTC), datetime(1970, 1, 2, tzinfo=UTC), "s", "is not that of an occurrence"),
        (datetime.max.replace(tzinfo=UTC), NOON, "s", "is not that of an occurrence"),
        (NOON.replace(tzinfo=None), NOON, "s", "the payload is not an occurrence of a schedule"),
    ],
    ids=["id", "exclusive-value", "too-early", "too-late", "no-zone"],
)
def test_an_occurrence_that_no_worker_has_enqueued_is_errored_and_does_not_fire(
    scheduled_app: ScheduledApp, at: datetime, id_at: datetime, value: str, error: str
) -> None:
    schedule = scheduled_app.declare(missed="all")
    scheduled_app.handle_due()
    payload = json.dumps({"schedule": "s", "times": schedule.times.text, "at": at.isoformat()}).encode()
    id_ = schedule.occurrence_id(id_at)
    queue = scheduled_app.tickwheel.queue("schedules")
    queue.enqueue(payload, id=id_, metadata={"schedule": value})
    scheduled_app.handle_due()
    forged = queue.get(id_, value)
    assert (forged.state, forged.attempt) == ("errored", 1)
    assert error in forged.error
    assert scheduled_app.fired() == []


def test_a_worker_reports_a_message_with_the_id_of_a_firing(
    scheduled_app: ScheduledApp, caplog: pytest.LogCaptureFixture
) -> None:
    schedule = scheduled_app.declare()
    scheduled_app.handle_due()
    scheduled_app.app.declared("work").enqueue(b"{}", id=schedule.firing_id(NOON + HOUR))
    scheduled_app.clock.advance(HOUR)
    scheduled_app.handle_due()
    assert "another message with the id of the firing of 2026-03-27 13:00:00+00:00" in caplog.text


def test_a_worker_reports_an_occurrence_that_is_due_after_its_time(
    scheduled_app: ScheduledApp, caplog: pytest.LogCaptureFixture
) -> None:
    schedule = scheduled_app.declare()
    next_occurrence = schedule.occurrence(NOON + HOUR)
    postponed = replace(next_occurrence, due=NOON + 1_000 * DAY)
    scheduled_app.app.declared("schedules").enqueue_many([postponed])
    scheduled_app.handle_due()
    assert f"the occurrence {next_occurrence.id} is due at 2028-12-21 12:00:00+00:00 only" in caplog.text


def test_an_app_without_schedules_creates_no_queue_for_them(scheduled_app: ScheduledApp) -> None:
    scheduled_app.handle_due()
    assert scheduled_app.tickwheel.queues() == []
