"""`tickwheel worker`: code of the app that runs at the start of a process, and fails or does not return."""

import json
import os
import signal
from pathlib import Path

import pytest

from services.process import free_port
from tests.fault.worker_processes import Worker
from tests.support.http_page import get_page
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.fault

APP = "tests.fault.start_app:app"
HOOK = "the hook startup of tests.fault.start_app.Database failed"


class Start:
    """Starts workers of the app. ``action`` is what the hook does."""

    def __init__(self, url: str, namespace: str, folder: Path) -> None:
        self.url, self.namespace, self.folder, self.port = url, namespace, folder, free_port()
        self._path = folder / "start"
        self.action("")

    def action(self, text: str) -> None:
        new = self.folder / "new"
        new.write_text(text)
        new.replace(self._path)

    def worker(self, *options: str) -> Worker:
        metrics = ("--metrics", f"127.0.0.1:{self.port}")
        start = str(self._path)
        return Worker(self.url, self.namespace, self.folder, *metrics, *options, app=APP, drive="never", START=start)

    def health(self) -> tuple[int, str]:
        """Return the status and the text of the health check. The status is 0 while the worker does not serve it."""
        try:
            return get_page(self.port, "/healthz")
        except OSError:
            return 0, ""

    def wait_for_health(self, status: int, text: str) -> None:
        eventually(lambda: self.health()[0] == status and text in self.health()[1], f"{status} {text}", 30, 0.02)

    def result(self, n: int) -> str | None:
        """Run a task, and return its result."""
        with Tickwheel(self.url, namespace=self.namespace) as tickwheel:
            queue = tickwheel.queue("work")
            id = queue.enqueue(json.dumps({"task": "double", "args": {"n": n}}).encode()).id
            eventually(lambda: queue.get(id).state == "completed", "the task has run", 30, 0.02)
            return queue.get(id).result


@pytest.fixture
def start(tickwheel_server: PrivateServer, namespace: str, tmp_path: Path) -> Start:
    return Start(tickwheel_server.url, namespace, tmp_path)


@pytest.mark.parametrize(
    ("error", "code", "has_traceback"),
    [("ValueError", 2, True), ("SystemExit", 2, True), ("Unavailable", 3, False), ("Forbidden", 1, False)],
)
def test_an_error_in_the_hook_of_the_first_process_ends_the_worker_with_one_line(
    start: Start, error: str, code: int, has_traceback: bool
) -> None:
    start.action(error)
    with start.worker("--processes", "2") as worker:
        assert worker.wait(30) == code
        [line] = [line for line in worker.log.splitlines() if " ERROR " in line]
        assert line.endswith(f"ERROR tickwheel.worker: {HOOK}: {error}: no database")
        assert ("Traceback" in worker.log) == has_traceback
        assert worker.record == [["hook"]]


def test_a_selector_that_cannot_be_made_ends_the_worker_with_one_json_document(start: Start) -> None:
    with start.worker("--selector", "tests.fault.start_app:BadSelector", "--json") as worker:
        assert worker.wait(30) == 2
        [line] = [line for line in map(json.loads, worker.log.splitlines()) if line["level"] == "ERROR"]
    reason = "the selector tests.fault.start_app:BadSelector failed: ValueError: no weights"
    assert (line["event"], line["reason"]) == ("process not started", reason)


def test_a_worker_is_healthy_as_soon_as_the_hook_of_its_first_process_has_returned(start: Start) -> None:
    start.action("wait")
    with start.worker("--processes", "2") as worker:
        worker.wait_until_recorded("hook")
        assert start.health() == (
            503,
            "no process has started yet: the first one loads the app or runs its start hooks\n",
        )
        # The second process waits until the first one has started.
        assert len(worker.children) == 1
        start.action("")
        start.wait_for_health(200, "ok")
        eventually(lambda: len(worker.children) == 2, "the second process runs", 30)
        assert start.result(4) == "8"
        assert worker.stop(30) == 0


def test_a_worker_whose_new_processes_cannot_start_retries_and_is_not_healthy(start: Start) -> None:
    with start.worker() as worker:
        start.wait_for_health(200, "ok")
        start.action("ValueError")
        [child] = worker.children
        os.kill(child, signal.SIGKILL)
        start.wait_for_health(503, "ended with code 2, and a new one has not started yet")
        eventually(lambda: worker.log.count(f"{HOOK}: ValueError: no database") >= 3, "it is restarted", 30)
        start.action("")
        start.wait_for_health(200, "ok")
        assert start.result(4) == "8"
        assert worker.stop(30) == 0


def test_a_worker_that_is_stopped_during_the_hook_of_its_first_process_ends_with_code_0(start: Start) -> None:
    start.action("wait")
    with start.worker("--drain", "30s") as worker:
        worker.wait_until_recorded("hook")
        worker.send_signal(signal.SIGTERM)
        eventually(lambda: "stopping: running tasks have 30 s" in worker.log, "the worker stops")
        start.action("")
        assert worker.wait(30) == 0


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("import no_such_library\n", "broken_shop: ModuleNotFoundError: No module named 'no_such_library'"),
        ("import sys\nsys.exit(0)\n", "broken_shop: SystemExit: 0"),
        (
            "from tickwheel.tasks import TaskApp\napp = TaskApp()\napp.on_load(lambda: int('x'))\n",
            "the tasks of broken_shop: ValueError: invalid literal for int() with base 10: 'x'",
        ),
    ],
    ids=["import", "exit", "load"],
)
def test_a_module_that_cannot_be_imported_ends_the_worker_with_one_line_and_one_traceback(
    tickwheel_server: PrivateServer, namespace: str, tmp_path: Path, source: str, problem: str
) -> None:
    (tmp_path / "broken_shop.py").write_text(source)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    where = (tickwheel_server.url, namespace, tmp_path)
    with Worker(*where, "--processes", "2", app="broken_shop:app", PYTHONPATH=path) as worker:
        assert worker.wait(30) == 2
    heads = [line for line in worker.log.splitlines() if " tickwheel" in line]
    assert [line.partition(" ERROR ")[2] for line in heads] == [f"tickwheel.worker: cannot import {problem}"]
    assert worker.log.count("Traceback") == 1


def test_a_module_of_a_selector_that_cannot_be_imported_ends_the_worker_with_one_line(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_selector.py").write_text("int('x')\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    with start.worker("--selector", "broken_selector:Mine") as worker:
        assert worker.wait(30) == 2
    [line] = [line for line in worker.log.splitlines() if " ERROR " in line]
    assert "cannot import the selector broken_selector:Mine: ValueError: invalid literal" in line
