"""Recurring tasks by a clock that the test turns: each time fires once, whoever sees to it, dies, or is late."""

import json
from collections.abc import Iterator
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


def declared(**given: Any) -> TaskApp:
    """An app whose task is recorded by its messages alone."""
    app = TaskApp(**given)
    app.queue("work", retention=30 * DAY)
    app.queue("exclusive", exclusive_key="kind")

    @app.task(queue="work", name="digest")
    def digest(kind: str = "daily") -> str:
        return current().message.id

    @app.task(queue="exclusive", name="alone", metadata=["kind"])
    def alone(kind: str = "daily") -> None: ...

    return app


class Place:
    """An app in the test's namespace, and the processes that see to its schedules."""

    def __init__(self, tester: TaskTester, app: TaskApp, clock: VirtualClock, tickwheel: Tickwheel) -> None:
        self.tester, self.app, self.clock, self.tickwheel = tester, app, clock, tickwheel
        self.fates: list[tuple[str, OccurrenceOutcome]] = []
        self.process = ScheduleRunner(app, "process 1", lambda name, fate: self.fates.append((name, fate)))

    def declare(self, interval: timedelta = HOUR, task: str = "digest", **policies: Any) -> Schedule:
        return self.app.every(interval, self.app.tasks[task], **{"name": "s", **policies})

    def look(self) -> None:
        """See to all that is due, as a process does that has just started, and to what follows of it."""
        for _ in range(2):
            self.clock.run_due()
            self.process.ensure_occurrences(self.clock.now)

    def fired(self, queue: str = "work") -> list[datetime]:
        """The times of the firings, in order."""
        there = queue in [each.name for each in self.tickwheel.queues()]
        return sorted(each.due for each in self.tickwheel.queue(queue).messages()) if there else []

    def take(self) -> Message:
        """The occurrence that is due, taken by a process that dies."""
        [taken] = self.tickwheel.queue("schedules").dequeue(lease=LEASE, worker="process 2")
        return taken


@pytest.fixture
def place(tickwheel: Tickwheel, tickwheel_clock: VirtualClock) -> Iterator[Place]:
    app = declared()
    with open_task_tester(app, tickwheel, tickwheel_clock) as tester:
        yield Place(tester, app, tickwheel_clock, tickwheel)
    app.close()


def test_a_schedule_fires_at_each_of_its_times_and_the_task_sees_which_it_is(place: Place) -> None:
    place.app.cron("30 2 * * *", place.app.tasks["digest"], timezone="Europe/Berlin", name="night")
    outcomes = place.tester.advance(4 * DAY)
    assert [json.loads(outcome.result or "") for outcome in outcomes] == [
        "night@2026-03-28T01:30:00Z",
        # The clocks go on in this night; there is no half past two.
        "night@2026-03-29T01:00:00Z",
        "night@2026-03-30T00:30:00Z",
        "night@2026-03-31T00:30:00Z",
    ]


def test_no_time_before_the_first_worker_is_missed(place: Place) -> None:
    place.declare(missed="all")
    place.look()
    assert place.fired() == []
    place.clock.advance(HOUR)
    place.look()
    assert place.fired() == [NOON + HOUR]


def test_however_late_it_is_seen_to_the_times_do_not_drift(place: Place) -> None:
    place.declare(MINUTE, missed="all")
    place.look()
    for late in (3, 17, 0, 59, 31):
        place.clock.set(NOON + (1 + len(place.fired())) * MINUTE + late * SECOND)
        place.look()
    assert place.fired() == [NOON + n * MINUTE for n in range(1, 6)]


def test_any_number_of_processes_fire_a_time_once(place: Place) -> None:
    place.declare(MINUTE, missed="all")
    others = [ScheduleRunner(place.app) for _ in range(3)]
    for _ in range(20):
        for process in (*others, place.process):
            process.ensure_occurrences(place.clock.now)
        place.clock.advance(MINUTE)
    place.look()
    assert place.fired() == [NOON + n * MINUTE for n in range(1, 21)]
    assert len(list(place.tickwheel.queue("schedules").messages())) == 21


@pytest.mark.parametrize("steps", [0, 1, 2], ids=["nothing", "fired", "and-the-next-enqueued"])
def test_a_process_that_dies_on_the_way_is_followed_by_another_and_it_has_fired_once(place: Place, steps: int) -> None:
    schedule = place.declare()
    place.look()
    place.clock.advance(HOUR)
    place.take()
    if steps > 0:
        place.app.enqueue(schedule.call.task, schedule.firing(NOON + HOUR))
    if steps > 1:
        place.tickwheel.queue("schedules").enqueue_many([schedule.occurrence(NOON + 2 * HOUR)])
    place.clock.advance(LEASE)
    place.look()
    place.clock.advance(HOUR)
    place.look()
    assert place.fired() == [NOON + HOUR, NOON + 2 * HOUR]


def test_a_process_that_wakes_up_late_changes_nothing(place: Place) -> None:
    place.declare(missed="all")
    place.look()
    place.clock.advance(HOUR)
    late = place.take()
    place.clock.advance(LEASE)
    place.look()
    place.process.handle(late)
    assert place.fired() == [NOON + HOUR]
    assert place.fates == [("s", OccurrenceOutcome.FIRED)]


@pytest.mark.parametrize("behind", [MINUTE, 23 * HOUR], ids=["a-minute", "a-day"])
def test_a_worker_whose_clock_is_late_does_not_fire_again(place: Place, behind: timedelta) -> None:
    place.declare()
    place.look()
    for _ in range(24):
        place.clock.advance(HOUR)
        place.look()
    place.process.ensure_occurrences(place.clock.now - behind)
    place.look()
    assert len(place.fired()) == 24


@pytest.mark.parametrize(
    ("missed", "fired"),
    [("all", [1, 2, 3, 4, 5, 6]), ("last", [5, 6]), ("skip", [6])],
    ids=["all", "last", "skip"],
)
def test_after_a_time_without_workers_all_the_last_or_none_of_the_missed_fire(
    place: Place, missed: Missed, fired: list[int]
) -> None:
    place.declare(missed=missed)
    place.look()
    place.clock.advance(5 * HOUR + 30 * MINUTE)
    place.look()
    place.clock.advance(30 * MINUTE)
    place.look()
    assert place.fired() == [NOON + n * HOUR for n in fired]


@pytest.mark.parametrize(("task", "queue"), [("digest", "work"), ("alone", "exclusive")], ids=["plain", "exclusive"])
def test_without_overlap_it_is_skipped_until_the_firing_before_is_finished(place: Place, task: str, queue: str) -> None:
    place.declare(task=task, overlap=False)
    place.look()
    place.clock.advance(HOUR)
    place.look()
    work = place.tickwheel.queue(queue)
    # It waits; it runs; it has failed, and is to be tried again.
    for state in ("pending", "running", "invisible"):
        if state == "running":
            [running] = work.dequeue(lease=12 * HOUR)
        if state == "invisible":
            running.fail("boom", retry_in=2 * HOUR)
        place.clock.advance(HOUR)
        place.look()
        assert [each.state for each in work.messages()] == [state]
    place.clock.advance(90 * MINUTE)
    place.look()
    [running] = work.dequeue()
    running.complete()
    place.clock.advance(30 * MINUTE)
    place.look()
    assert place.fired(queue)[-1] == NOON + 6 * HOUR
    assert [fate for _, fate in place.fates] == [
        OccurrenceOutcome.FIRED,
        *[OccurrenceOutcome.SKIPPED] * 4,
        OccurrenceOutcome.FIRED,
    ]


@pytest.mark.parametrize("missed", ["last", "skip"])
def test_without_overlap_the_firing_before_is_known_after_a_time_without_workers(place: Place, missed: Missed) -> None:
    place.declare(MINUTE, overlap=False, missed=missed)
    place.look()
    place.clock.advance(MINUTE)
    place.look()
    place.clock.advance(DAY + 3 * DAY + 30 * SECOND)
    for _ in range(3):
        place.look()
        place.clock.advance(MINUTE)
    assert place.fired() == [NOON + MINUTE]


def test_without_overlap_it_is_known_too_where_another_made_the_next_occurrence(place: Place) -> None:
    schedule = place.declare(overlap=False)
    place.look()
    for n in range(1, 4):
        place.clock.advance(HOUR)
        place.tickwheel.queue("schedules").enqueue_many([schedule.occurrence(NOON + (n + 1) * HOUR)])
        place.look()
    assert place.fired() == [NOON + HOUR]


def test_without_overlap_a_later_time_waits_for_the_one_that_a_process_died_with(place: Place) -> None:
    place.declare(SECOND, overlap=False)
    place.look()
    place.clock.advance(SECOND)
    place.take()
    for _ in range(3):
        place.look()
        place.clock.advance(SECOND)
    assert place.fates == []
    place.clock.advance(LEASE)
    place.look()
    assert place.fired() == [NOON + SECOND]
    assert [fate for _, fate in place.fates] == [OccurrenceOutcome.FIRED, *[OccurrenceOutcome.SKIPPED] * 8]


def test_without_overlap_a_later_time_waits_for_the_one_that_could_not_be_seen_to(place: Place) -> None:
    schedule = place.declare(overlap=False, missed="all")
    place.look()
    place.clock.advance(HOUR)
    place.take().fail("the queue is blocked", retry_in=90 * MINUTE)
    place.tickwheel.queue("schedules").enqueue_many([schedule.occurrence(NOON + 2 * HOUR)])
    place.clock.advance(HOUR)
    place.look()
    assert place.fates == []
    place.clock.advance(32 * MINUTE)
    for _ in range(2):
        place.look()
        place.clock.advance(MINUTE)
    assert place.fired() == [NOON + HOUR]
    assert [fate for _, fate in place.fates] == [OccurrenceOutcome.FIRED, OccurrenceOutcome.SKIPPED]


def test_an_occurrence_that_is_cancelled_does_not_fire_and_those_after_it_do(place: Place) -> None:
    schedule = place.declare()
    place.look()
    place.tickwheel.queue("schedules").cancel(schedule.occurrence_id(NOON + HOUR), "s")
    place.clock.advance(HOUR)
    place.look()
    place.clock.advance(HOUR)
    place.look()
    assert place.fired() == [NOON + 2 * HOUR]


def test_a_blocked_queue_of_the_task_makes_it_late_and_no_more(place: Place) -> None:
    place.declare()
    place.look()
    place.app.declared("work").block()
    place.clock.advance(HOUR)
    place.look()
    place.app.declared("work").unblock()
    place.clock.advance(2 * SECOND)
    place.look()
    assert place.fired() == [NOON + HOUR]


def test_while_versions_change_each_fires_what_it_knows(place: Place) -> None:
    place.declare()
    place.look()
    newer = declared()
    schedule = newer.every(2 * HOUR, newer.tasks["digest"].call("weekly"), name="s")
    newer.move(**place.app.where)
    process = ScheduleRunner(newer)
    process.ensure_occurrences(place.clock.now)
    # At one the older version alone fires, at two both would, by one message. Who is first may have to leave it.
    for _ in range(2):
        place.clock.advance(HOUR)
        for order in ((process, place.process), (place.process, process)):
            for each in order:
                each.fire_due()
            place.clock.advance(2 * SECOND)
    assert place.fired() == [NOON + HOUR, NOON + 2 * HOUR]
    # Then it is gone, and what it would have fired at three and later is dropped.
    for _ in range(10):
        place.clock.advance(30 * MINUTE)
        process.ensure_occurrences(place.clock.now)
    assert place.fired() == [NOON + HOUR, NOON + 2 * HOUR, NOON + 4 * HOUR, NOON + 6 * HOUR]
    assert schedule.next(place.clock.now) == NOON + 8 * HOUR
    newer.close()


def test_times_that_a_schedule_has_no_more_do_not_fire_and_are_dropped(place: Place) -> None:
    old = Schedule("s", place.app.tasks["digest"].call(), Every(HOUR))
    place.app.declared("schedules").enqueue_many([old.occurrence(NOON + HOUR)])
    place.declare(2 * HOUR, missed="all")
    place.look()
    occurrences = place.tickwheel.queue("schedules")
    for wait, state in ((HOUR, "invisible"), (9 * MINUTE, "invisible"), (MINUTE, "completed")):
        place.clock.advance(wait)
        place.process.fire_due()
        assert occurrences.get(old.occurrence_id(NOON + HOUR), "s").state == state
    assert place.fates == [("s", OccurrenceOutcome.UNKNOWN)]
    place.clock.advance(50 * MINUTE)
    place.look()
    assert place.fired() == [NOON + 2 * HOUR]


def test_apps_of_one_namespace_have_queues_of_their_own(place: Place) -> None:
    place.declare()
    other = declared(schedule_queue="other-schedules")
    other.every(2 * HOUR, other.tasks["digest"], name="other")
    other.move(**place.app.where)
    place.look()
    ScheduleRunner(other).ensure_occurrences(place.clock.now)
    place.clock.advance(2 * HOUR)
    place.look()
    assert place.fired() == [NOON + 2 * HOUR]
    ScheduleRunner(other).ensure_occurrences(place.clock.now)
    assert sorted(each.id for each in place.tickwheel.queue("work").messages()) == [
        "other@2026-03-27T14:00:00Z", "s@2026-03-27T14:00:00Z"
    ]  # fmt: skip
    other.close()


def test_a_message_that_is_no_occurrence_is_errored(place: Place) -> None:
    place.declare()
    place.look()
    queue = place.tickwheel.queue("schedules")
    queue.enqueue(b"order 17", id="stray", metadata={"schedule": "s"})
    place.look()
    assert queue.get("stray", "s").error.startswith("this is no occurrence of a schedule")


def test_an_app_without_schedules_has_no_queue_for_them(place: Place) -> None:
    place.look()
    assert place.tickwheel.queues() == []
