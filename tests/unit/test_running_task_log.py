"""Lines that the code of an application logs while a task runs: they name the task and its message."""

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from celery.utils.log import get_task_logger

from tickwheel.model.message import LeasedMessage
from tickwheel.runtime import log_format
from tickwheel.runtime.log_format import JsonLines, TextLines
from tickwheel.tasks import TaskApp
from tickwheel.tasks.run_context import CURRENT_RUN, Run, running_task

pytestmark = pytest.mark.unit

app = TaskApp("redis://127.0.0.1:1")


@app.task(queue="orders")
def accept(secret: str) -> None: ...


TASK = {"queue": "orders", "id": "id-1", "attempt": 2, "task": f"{__name__}.accept"}
PREFIX = f"{__name__}.accept[id-1]: "


@pytest.fixture
def running() -> Iterator[Run]:
    message = LeasedMessage.by_lease("orders", 1, "id-1", None, b"", 2)
    run = Run(accept, message, {"secret": "hidden"})
    token = CURRENT_RUN.set(run)
    yield run
    CURRENT_RUN.reset(token)


def text_of(logger: logging.Logger, text: str, *args: object) -> str:
    """Return the line of the text log, without its time."""
    record = logger.makeRecord(logger.name, logging.INFO, "", 0, text, args, None)
    return TextLines(log_format._FORMAT, running_task).format(record).split(maxsplit=2)[2]


def fields_of(logger: logging.Logger, text: str, **extra: Any) -> dict[str, Any]:
    """Return the document of the log with ``--json``, without what each line has."""
    record = logger.makeRecord(logger.name, logging.INFO, "", 0, text, (), None, extra=extra)
    document = json.loads(JsonLines(running_task).format(record))
    return {key: value for key, value in document.items() if key not in {"at", "level", "logger", "text"}}


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize("logger", [logging.getLogger("courier.tasks"), get_task_logger("courier.moved")], ids=str)
def test_a_line_of_a_running_task_names_the_task_and_the_message_and_no_argument(logger: logging.Logger) -> None:
    line = text_of(logger, "accepting %s", 5)
    assert line == f"INFO {logger.name}: {PREFIX}accepting 5"
    assert fields_of(logger, "accepting 5") == TASK
    assert "hidden" not in line


@pytest.mark.usefixtures("running")
def test_the_code_of_a_coroutine_belongs_to_its_task() -> None:
    async def log() -> str:
        await asyncio.sleep(0)
        return text_of(logging.getLogger("courier"), "accepting")

    assert asyncio.run(log()) == f"INFO courier: {PREFIX}accepting"


def test_the_lines_of_a_background_job_do_not_name_a_task_that_has_ended(running: Run) -> None:
    # An asyncio task keeps the context in which it was created.
    running._has_ended = True
    assert text_of(logging.getLogger("courier"), "refreshing") == "INFO courier: refreshing"
    assert fields_of(logging.getLogger("courier"), "refreshing") == {}


@pytest.mark.usefixtures("running")
def test_a_line_that_names_its_task_already_has_no_prefix() -> None:
    text = f"Task {TASK['task']}[id-1] succeeded"
    assert text_of(logging.getLogger("celery.app.trace"), text) == f"INFO celery.app.trace: {text}"


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize("name", ["tickwheel", "tickwheel.worker"])
def test_the_lines_of_tickwheel_have_their_own_fields(name: str) -> None:
    logger = logging.getLogger(name)
    assert text_of(logger, "received") == f"INFO {name}: received"
    assert fields_of(logger, "received", fields={"id": "another"}) == {"id": "another"}


@pytest.mark.usefixtures("running")
def test_fields_of_the_application_take_precedence() -> None:
    fields = {"id": "of the order", "amount": 5}
    assert fields_of(logging.getLogger("courier"), "accepting", fields=fields) == TASK | fields


def test_fields_of_the_application_may_have_any_value_and_replace_no_head() -> None:
    order = UUID(int=5)
    record = logging.getLogger("courier").makeRecord(
        "courier", logging.ERROR, "", 0, "refused", (), None, extra={"fields": {"level": "gold", 7: order, "text": 1}}
    )
    line = json.loads(JsonLines(running_task).format(record))
    assert (line["level"], line["text"], line["level_"], line["text_"], line["7"]) == (
        *("ERROR", "refused", "gold", 1),
        str(order),
    )


def test_long_fields_of_any_kind_are_cut() -> None:
    fields = fields_of(logging.getLogger("courier"), "refused", fields={"error": ValueError("x" * 100_000)})
    assert len(fields["error"]) < 10_000


@pytest.mark.parametrize("fields", [None, ["a"], "text"], ids=str)
def test_a_line_whose_fields_are_no_mapping_is_logged_without_them(fields: object) -> None:
    assert fields_of(logging.getLogger("courier"), "refused", fields=fields) == {}


def test_a_line_outside_of_tasks_names_none() -> None:
    logger = logging.getLogger("courier")
    assert text_of(logger, "starting") == "INFO courier: starting"
    assert fields_of(logger, "starting") == {}


def test_the_prefix_cannot_add_a_line_to_the_log() -> None:
    record = logging.LogRecord("courier", logging.INFO, "", 0, "accepting", (), None)
    task = {"task": "a\n2030-01-01 00:00:00,000 INFO tickwheel: FORGED", "id": "id-1"}
    assert "\n" not in TextLines(log_format._FORMAT, lambda: task).format(record)
