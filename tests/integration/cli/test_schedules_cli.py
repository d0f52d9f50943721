"""`tickwheel schedules` lists when the recurring tasks of an app fire."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.integration.cli.command_runner import Run, WriteModule, document

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


def test_schedules_that_an_app_declares_while_it_is_loaded_are_listed(run: Run, write_module: WriteModule) -> None:
    write_module(
        "loaded_shop",
        "from tickwheel.tasks import TaskApp\napp = TaskApp()\n@app.task()\ndef send() -> None: ...\n"
        "@app.on_load\ndef declare() -> None:\n    app.every(60, send)\n",
    )
    [schedule] = document(run("schedules", "loaded_shop:app", "--json"))
    assert schedule["times"] == "every 0:01:00"


@pytest.mark.parametrize(
    "command",
    [
        ("schedules", "ending_shop:app"),
        ("queue", "create", "--app", "ending_shop:app"),
        ("route", "set", "send", "--to", "celery", "--app", "ending_shop:app"),
    ],
    ids=["schedules", "queue", "route"],
)
def test_a_module_of_an_app_that_ends_the_program_is_reported(
    run: Run, write_module: WriteModule, command: tuple[str, ...]
) -> None:
    write_module("ending_shop", "import sys\nsys.exit(0)\n")
    assert "tickwheel: cannot import ending_shop: SystemExit: 0" in run(*command, code=2).stderr
