"""A task has a priority from 0 to 9, and a call can have another one: calls of a higher priority run first."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest

from tickwheel.errors import InvalidArgument
from tickwheel.tasks import TaskApp
from tickwheel.testing import VirtualClock
from tickwheel.testing.task_tester import TaskTester

pytestmark = pytest.mark.integration

HOUR, YEAR = timedelta(hours=1), timedelta(days=365)
app = TaskApp()


@app.task(queue="mail")
def plain(mark: str) -> str:
    return mark


@app.task(queue="mail", priority=7)
def urgent(mark: str) -> str:
    return mark


@app.task(queue="mail", deadline=HOUR)
def dated(mark: str) -> str:
    return mark


def nothing() -> None: ...


@pytest.fixture
def tester(tickwheel_tasks: Callable[[TaskApp], TaskTester]) -> TaskTester:
    return tickwheel_tasks(app)


def test_calls_run_in_the_order_of_their_priorities(tester: TaskTester) -> None:
    plain.now("none")
    plain.with_options(priority=3).now("three")
    urgent.now("seven")
    urgent.with_options(priority=1).now("one")
    asyncio.run(send_most_urgent())
    assert [outcome.result for outcome in tester.run_due()] == ['"nine"', '"seven"', '"three"', '"one"', '"none"']


async def send_most_urgent() -> None:
    await plain.with_options(priority=9).anow("nine")
    await app.aclose()


@pytest.mark.usefixtures("tester")
def test_the_priority_of_a_call_replaces_that_of_its_task(tickwheel_clock: VirtualClock) -> None:
    due, without_priority = tickwheel_clock.now + HOUR, cast(Any, {"priority": None})
    calls = {
        "of the task": urgent.later(HOUR, "m"),
        "of the call": urgent.with_options(priority=2).later(HOUR, "m"),
        "none": urgent.with_options(**without_priority).later(HOUR, "m"),
        "zero": urgent.with_options(priority=0).later(HOUR, "m"),
        "at a time": urgent.at(due, "m"),
    }
    queue = app.tickwheel.queue("mail")
    assert {name: due - queue.get(call.id).deadline for name, call in calls.items()} == {
        "of the task": 7 * YEAR,
        "of the call": 2 * YEAR,
        "none": timedelta(0),
        "zero": timedelta(0),
        "at a time": 7 * YEAR,
    }


@pytest.mark.usefixtures("tester")
def test_a_call_replaces_the_deadline_of_its_task_by_a_priority(tickwheel_clock: VirtualClock) -> None:
    options = cast(Any, {"deadline": None, "priority": 1})
    sent = dated.with_options(**options).now("m")
    assert app.tickwheel.queue("mail").get(sent.id).deadline == tickwheel_clock.now - YEAR


@pytest.mark.parametrize("value", [-1, 10, True, 1.5, "1"])
def test_a_priority_is_a_whole_number_from_0_to_9(value: Any) -> None:
    allowed = f"priority must be a whole number from 0 to 9, not {value!r}"
    with pytest.raises(InvalidArgument, match=allowed):
        TaskApp().task(priority=value)(nothing)
    with pytest.raises(InvalidArgument, match=allowed):
        plain.with_options(priority=value)


def test_a_priority_and_a_deadline_exclude_each_other() -> None:
    with pytest.raises(InvalidArgument, match="give a deadline or a priority, not both"):
        TaskApp().task(priority=1, deadline=HOUR)(nothing)
    for priority in (0, 1):
        with pytest.raises(InvalidArgument, match="give a deadline or a priority, not both"):
            dated.with_options(priority=priority)
    with pytest.raises(InvalidArgument, match="give a deadline or a priority, not both"):
        urgent.with_options(deadline=HOUR)
