"""Schedules of a worker that is stopping: nothing fires any more, so no task is left over that would run late."""

import threading
from datetime import UTC, datetime, timedelta

import pytest

from tickwheel import Tickwheel
from tickwheel.tasks import TaskApp
from tickwheel.testing import VirtualClock
from tickwheel.testing.task_tester import open_task_tester
from tickwheel.worker.process import _check_memory
from tickwheel.worker.schedule_runner import OccurrenceOutcome, ScheduleRunner

NOON = datetime(2026, 3, 27, 12, tzinfo=UTC)
HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)

pytestmark = [pytest.mark.integration, pytest.mark.tickwheel(shards=4, now=NOON)]


def declared(*schedules: str) -> TaskApp:
    """Return an app with hourly schedules that skip what they miss."""
    app = TaskApp()

    @app.task(queue="work", name="digest")
    def digest() -> None: ...

    for name in schedules:
        app.every(HOUR, digest, name=name, missed="skip", grace=SECOND)
    return app


def test_a_time_that_passes_while_the_worker_stops_is_missed(
    tickwheel: Tickwheel, tickwheel_clock: VirtualClock
) -> None:
    app, stopping, outcomes = declared("hourly"), threading.Event(), list[tuple[str, OccurrenceOutcome]]()
    with open_task_tester(app, tickwheel, tickwheel_clock), app:
        stopped = ScheduleRunner(app, is_worker_stopping=stopping.is_set)
        stopped.ensure_occurrences(NOON)
        stopping.set()
        tickwheel_clock.advance(HOUR)
        tickwheel_clock.run_due()
        stopped.fire_due()
        tickwheel_clock.advance(9 * SECOND)
        ScheduleRunner(app, on_outcome=lambda name, outcome: outcomes.append((name, outcome))).fire_due()
        assert outcomes == [("hourly", OccurrenceOutcome.MISSED)]
        assert [queue.name for queue in tickwheel.queues()] == ["schedules"]


def test_a_process_that_uses_too_much_memory_stops_and_is_replaced() -> None:
    stopping, is_replaced = threading.Event(), threading.Event()
    _check_memory(None, stopping, is_replaced)
    assert (stopping.is_set(), is_replaced.is_set()) == (False, False)
    _check_memory(1, stopping, is_replaced)
    assert (stopping.is_set(), is_replaced.is_set()) == (True, True)


def test_occurrences_that_a_stopping_worker_has_taken_are_released_and_fire_in_another_worker(
    tickwheel: Tickwheel, tickwheel_clock: VirtualClock
) -> None:
    app, stopping, fired = declared("one", "two", "three"), threading.Event(), list[str]()

    def stop(name: str, _: OccurrenceOutcome) -> None:
        fired.append(name)
        stopping.set()

    with open_task_tester(app, tickwheel, tickwheel_clock), app:
        stopped = ScheduleRunner(app, on_outcome=stop, is_worker_stopping=stopping.is_set)
        stopped.ensure_occurrences(NOON)
        tickwheel_clock.advance(HOUR)
        tickwheel_clock.run_due()
        stopped.fire_due()
        assert len(fired) == 1
        left = [message for message in tickwheel.queue("schedules").messages() if message.due == NOON + HOUR]
        assert sorted((message.state, message.attempt) for message in left) == [
            ("completed", 1), ("pending", 0), ("pending", 0)
        ]  # fmt: skip
        while ScheduleRunner(app, on_outcome=stop).fire_due():
            pass
        assert sorted(fired) == ["one", "three", "two"]
