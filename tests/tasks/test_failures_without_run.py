"""The log of messages that fail although no task has raised an error that a worker handles."""

import logging
from typing import Any

import pytest

from tests.support.consumer_thread import run_consumer
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.tasks import Reject, TaskApp
from tickwheel.tasks.signature import UNKNOWN

pytestmark = pytest.mark.integration

# The payload of a message, and the name of its task in the log.
FAILING = {
    "a removed task": (b'{"task": "shop.old-task", "args": {}}', "shop.old-task"),
    "a name like a log line": (b'{"task": "shop.pay: succeeded in 3 ms", "args": {}}', UNKNOWN),
    "other arguments": (b'{"task": "greet", "args": {"user": 7, "colour": 1}}', "greet"),
    "no call": (b"\xff\x00", UNKNOWN),
    "an interrupt": (b'{"task": "interrupted", "args": {}}', "interrupted"),
}


@pytest.fixture
def app(tickwheel: Tickwheel) -> TaskApp:
    app = TaskApp()
    app.queue("work")
    tickwheel.create_queue("work", max_attempts=1)

    @app.task(name="greet", queue="work")
    def greet(user: int) -> None: ...

    @app.task(name="interrupted", queue="work")
    def interrupted() -> None:
        raise KeyboardInterrupt

    @app.task(name="choosy", queue="work")
    def choosy() -> None:
        raise Reject("not today")

    return app


def errored_lines(tickwheel: Tickwheel, app: TaskApp, caplog: Any, payload: bytes, **options: Any) -> list[Any]:
    """Return the lines about a message once its failure is logged or, of an app that may not log it, stored."""
    id_, work = tickwheel.queue("work").enqueue(payload).id, tickwheel.queue("work")
    with caplog.at_level(logging.INFO, "tickwheel.worker"), run_consumer(app, tickwheel, **options):
        eventually(lambda: work.get(id_).state == "errored", "the message is errored", 20)
    return [record for record in caplog.records if getattr(record, "fields", {}).get("id") == id_]


@pytest.mark.parametrize("kind", FAILING)
@pytest.mark.parametrize("logs_tasks", [True, False])
def test_the_end_of_a_message_whose_task_cannot_run_is_an_error_in_the_log(
    tickwheel: Tickwheel, app: TaskApp, caplog: pytest.LogCaptureFixture, kind: str, logs_tasks: bool
) -> None:
    lines = errored_lines(tickwheel, app, caplog, FAILING[kind][0], logs_tasks=logs_tasks)
    [last] = [line for line in lines if "errored, attempts used up" in line.getMessage()]
    assert (last.levelname, last.fields["state"]) == ("ERROR", "errored")
    assert ["received" in line.getMessage() for line in lines].count(True) == logs_tasks


@pytest.mark.parametrize("kind", FAILING)
def test_all_lines_about_a_message_have_the_same_name_of_its_task(
    tickwheel: Tickwheel, app: TaskApp, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    payload, name = FAILING[kind]
    lines = errored_lines(tickwheel, app, caplog, payload)
    assert len(lines) == 3
    assert {line.fields["task"] for line in lines} == {name}


@pytest.mark.parametrize("logs_tasks", [True, False])
def test_a_failure_that_the_task_has_chosen_is_no_error(
    tickwheel: Tickwheel, app: TaskApp, caplog: pytest.LogCaptureFixture, logs_tasks: bool
) -> None:
    lines = errored_lines(tickwheel, app, caplog, b'{"task": "choosy", "args": {}}', logs_tasks=logs_tasks)
    assert [line.levelname for line in lines] == ["INFO", "INFO"] * logs_tasks
