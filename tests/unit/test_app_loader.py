"""The search for the module of an app."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.celery_app import make_celery_app
from tickwheel.celery import migrate
from tickwheel.errors import InvalidArgument
from tickwheel.tasks import TaskApp
from tickwheel.worker.app_loader import load_app, select_queues

pytestmark = pytest.mark.unit

NAME = "app_of_the_loader_test"


@pytest.mark.parametrize("is_listed", [False, True])
def test_the_working_directory_is_searched_first_also_if_the_path_lists_it_further_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_listed: bool
) -> None:
    for folder in ("here", "elsewhere"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{NAME}.py").write_text("from tickwheel.tasks import TaskApp\napp = TaskApp()\n")
    listed = [str(tmp_path / "here")] if is_listed else []
    monkeypatch.setattr(sys, "path", [str(tmp_path / "elsewhere"), *listed, *sys.path])
    monkeypatch.chdir(tmp_path / "here")

    load_app(f"{NAME}:app")

    assert sys.modules.pop(NAME).__file__ == str(tmp_path / "here" / f"{NAME}.py")


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("import sys\nsys.exit(0)\n", r"cannot import MODULE: SystemExit: 0 \(PATH:2\)"),
        ("import no_such_library\n", r"cannot import MODULE: ModuleNotFoundError: .*no_such_library' \(PATH:1\)"),
        ("import json\njson.loads('x')\n", r"cannot import MODULE: JSONDecodeError: .* \(PATH:2\)"),
        ("app = (\n", r"cannot import MODULE: SyntaxError: '\(' was never closed \(MODULE.py, line 1\)"),
        (
            "from tickwheel.tasks import TaskApp\napp = TaskApp()\n@app.on_load\ndef end() -> None:\n    int('x')\n",
            r"cannot import the tasks of MODULE: ValueError: .*: 'x' \(PATH:5\)",
        ),
    ],
    ids=["exit", "missing", "library", "syntax", "load"],
)
def test_an_error_of_the_code_of_an_app_is_one_that_names_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, problem: str
) -> None:
    path = tmp_path / f"{NAME}.py"
    path.write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop(NAME, None)

    with pytest.raises(InvalidArgument) as raised:
        load_app(f"{NAME}:app")

    sys.modules.pop(NAME, None)
    assert re.fullmatch(problem.replace("MODULE", NAME).replace("PATH", re.escape(str(path))), str(raised.value))
    assert raised.value.__cause__ is not None


@pytest.fixture
def celery_and_app(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, TaskApp]:
    """An app without a server, which runs the tasks of a Celery app, and the Celery app."""
    celery, app = make_celery_app(monkeypatch), TaskApp("redis://127.0.0.1:1")
    migrate(celery, app, queues={"fast lane": "fast"})
    return celery, app


def test_an_app_that_runs_tasks_of_celery_has_every_queue_that_the_command_line_names(
    celery_and_app: tuple[Any, TaskApp],
) -> None:
    celery, app = celery_and_app
    celery.conf.worker_prefetch_multiplier = 3
    app.load()
    celery_queue, urgent = select_queues(app, ["celery", "urgent"])
    assert (celery_queue.name, urgent.name, urgent.batch) == ("celery", "urgent", 3)
    assert urgent.config == celery_queue.config == {"payload_limit": 262_144}
    assert [queue.name for queue in select_queues(app, ["fast"])] == ["fast"]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("a:b", "a queue's name"),
        ("schedules", "reserved for the schedules"),
        ("fast lane", "Celery's queue 'fast lane' is the queue 'fast' here"),
    ],
)
def test_the_command_line_names_queues_as_tickwheel_does(
    celery_and_app: tuple[Any, TaskApp], name: str, problem: str
) -> None:
    _, app = celery_and_app
    app.load()
    with pytest.raises(InvalidArgument, match=problem):
        select_queues(app, ["celery", name])


def test_an_app_of_its_own_has_only_the_queues_that_it_declares() -> None:
    app = TaskApp("redis://127.0.0.1:1")
    app.queue("mail")
    with pytest.raises(InvalidArgument, match="the app has no queue 'urgent'; it has mail"):
        select_queues(app, ["mail", "urgent"])


def test_a_router_that_needs_the_arguments_of_a_call_leaves_its_tasks_in_the_default_queue(
    celery_and_app: tuple[Any, TaskApp],
) -> None:
    def nothing() -> None: ...

    celery, app = celery_and_app
    celery.conf.task_routes = [lambda name, args, *more, **options: {"queue": args[0]}]
    celery.task(name="routed.by_arguments", shared=False)(nothing)
    app.load()
    assert app.tasks["routed.by_arguments"].queue == "celery"
