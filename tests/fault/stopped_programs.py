"""Programs of Tickwheel that a test stops (SIGSTOP), signals and continues."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from services.process import Process
from tests.support.event_process_thread import run_event_process
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.testing import PrivateServer

ROOT = Path(__file__).parents[2]
TIMES = pytest.mark.parametrize("times", [2, pytest.param(50, marks=pytest.mark.soak)])


@dataclass(frozen=True)
class Program:
    """The arguments of `tickwheel`. The program runs when its log contains ``ready``, or when its messages exist.

    ``is_driven``: the test must drive the namespace.
    """

    arguments: tuple[str, ...]
    ready: str
    is_driven: bool = True
    exit_status: int = 0


# The event process of the test drives.
NEVER = ("--drive", "never")
PROGRAMS = {
    "events": Program(("events", "--lock", "LOCK"), "elected", is_driven=False),
    "events by lease": Program(("events",), "elected", is_driven=False),
    "serve": Program(("serve", "--listen", "127.0.0.1:0", *NEVER), "serving grpc"),
    "serve with two processes": Program(
        ("serve", "--listen", "127.0.0.1:0", "--processes", "2", *NEVER), "serving grpc"
    ),
    "worker": Program(("worker", "tests.fault.worker_app:app", *NEVER), "task at a time"),
    "dev": Program(("dev", "--listen", "127.0.0.1:0"), "serving grpc", is_driven=False),
    "load": Program(("load", "media-encoding", "--json"), "", exit_status=130),
}


@contextmanager
def open_program(name: str, server: PrivateServer, namespace: str, folder: Path) -> Iterator[Callable[[], Process]]:
    """Yield a function that starts the program of `PROGRAMS` and waits until it runs."""
    chosen = PROGRAMS[name]
    environment = {"TICKWHEEL_URL": server.url, "TICKWHEEL_NAMESPACE": namespace}
    if name == "dev":
        environment = {"TICKWHEEL_DATA_DIR": str(folder / "data")}
    command = [sys.executable, "-m", "tickwheel", *(str(folder / a) if a == "LOCK" else a for a in chosen.arguments)]

    with Tickwheel(server.url, namespace=namespace, drive=False) as tickwheel:

        def has_started() -> bool:
            return any(queue.counts()["invisible"] + queue.counts()["pending"] for queue in tickwheel.queues())

        def start() -> Process:
            ready_when = chosen.ready or has_started
            return Process(chosen.arguments[0], command, folder, ready_when, environment=environment, cwd=ROOT)

        if chosen.is_driven:
            with run_event_process(server.url, namespace, folder / "driver-lock"):
                yield start
        else:
            yield start


def check_that_it_ends(name: str, start: Callable[[], Process], number: signal.Signals, times: int) -> None:
    """Start the program ``times`` times, and check that a signal that arrives while it is stopped ends it."""
    # An event process whose main thread handled the signal would miss only some of the signals.
    for _ in range(max(times, 10) if name.startswith("events") else times):
        with start() as process:
            send_while_stopped(process, number)
            assert process.wait(40) == PROGRAMS[name].exit_status, process.log_tail()


def send_while_stopped(process: Process, number: signal.Signals) -> None:
    process.pause()
    eventually(partial(_is_stopped, process.pid), "the process is stopped")
    process.send_signal(number)
    process.resume()


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
