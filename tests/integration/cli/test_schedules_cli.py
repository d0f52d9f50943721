"""`tickwheel schedules` lists when the recurring tasks of an app fire."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.integration.cli.command_runner import Run, document

pytestmark = pytest.mark.integration

APP = "tests.fault.recurring_app:app"


def test_the_next_times_of_each_schedule_are_listed(run: Run) -> None:
    tick, crawl = document(run("schedules", APP, "--times", 3, "--json"))
    assert (tick["name"], tick["times"], tick["overlap"], tick["missed"]) == (
        "tick",
        "cron * * * * * * UTC",
        True,
        "all",
    )
    assert (crawl["task"], crawl["times"], crawl["overlap"]) == (
        "tests.fault.recurring_app.crawl",
        "every 0:00:01",
        False,
    )
    first, *others = (datetime.fromisoformat(at) for at in tick["next"])
    assert others == [first + timedelta(seconds=1), first + timedelta(seconds=2)]
    assert abs(first - datetime.now(UTC)) < timedelta(seconds=30)
    table = run("schedules", APP).stdout.splitlines()
    assert [line.split()[:2] for line in table[1:]] == [
        ["tick", "tests.fault.recurring_app.tick"], ["crawl", "tests.fault.recurring_app.crawl"]
    ]  # fmt: skip
    assert table[0].split() == ["schedule", "task", "next", "times"]
    assert [line.partition(" UTC ")[2].strip() for line in table[1:]] == ["* * * * * *, UTC", "every 1 s"]


def test_an_app_without_schedules_is_reported(run: Run) -> None:
    assert "has no schedules" in run("schedules", "tests.fault.worker_app:app").stderr


def test_a_function_in_place_of_an_app_is_refused(run: Run) -> None:
    assert "is not a TaskApp: its type is function" in run("schedules", "tests.fault.worker_app:record", code=2).stderr
