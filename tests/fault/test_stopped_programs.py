"""Each program handles its signals, even if the program was stopped (SIGSTOP) when the signal arrived."""

import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from services.process import Process
from tests.support.event_process_thread import run_event_process
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.fault

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Program:
    """The arguments of `tickwheel`. The program runs when its log contains ``ready``, or when its messages exist.

    ``is_driven``: the test must drive the namespace.
    """

    arguments: tuple[str, ...]
    ready: str
    is_driven: bool = True
    exit_status: int = 0


PROGRAMS = {
    "events": Program(("events", "--lock", "LOCK"), "elected", is_driven=False),
    "events by lease": Program(("events", "--election", "lease"), "elected", is_driven=False),
    "serve": Program(("serve", "--listen", "127.0.0.1:0"), "serving grpc"),
    "serve with two processes": Program(("serve", "--listen", "127.0.0.1:0", "--processes", "2"), "serving grpc"),
    "worker": Program(("worker", "tests.fault.worker_app:app"), "task at a time"),
    "dev": Program(("dev", "--listen", "127.0.0.1:0"), "serving grpc", is_driven=False),
    "load": Program(("load", "media-encoding", "--json"), "", exit_status=130),
}


@pytest.fixture(params=PROGRAMS)
def program(
    request: pytest.FixtureRequest, tickwheel_server: PrivateServer, namespace: str, tmp_path: Path
) -> Iterator[Callable[[], Process]]:
    """Return a function that starts the program and waits until it runs."""
    chosen = PROGRAMS[request.param]
    environment = {"TICKWHEEL_URL": tickwheel_server.url, "TICKWHEEL_NAMESPACE": namespace}
    if request.param == "dev":
        environment = {"TICKWHEEL_DATA_DIR": str(tmp_path / "data")}
    command = [sys.executable, "-m", "tickwheel", *(str(tmp_path / a) if a == "LOCK" else a for a in chosen.arguments)]

    with Tickwheel(tickwheel_server.url, namespace=namespace, drive=False) as tickwheel:

        def has_started() -> bool:
            return any(queue.counts()["invisible"] + queue.counts()["pending"] for queue in tickwheel.queues())

        def start() -> Process:
            ready_when = chosen.ready or has_started
            return Process(chosen.arguments[0], command, tmp_path, ready_when, environment=environment, cwd=ROOT)

        if chosen.is_driven:
            with run_event_process(tickwheel_server.url, namespace, tmp_path / "driver-lock"):
                yield start
        else:
            yield start


TIMES = pytest.mark.parametrize("times", [2, pytest.param(50, marks=pytest.mark.soak)])


@pytest.mark.timeout(300)
@TIMES
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_program_that_was_stopped_ends_on_a_signal(
    request: pytest.FixtureRequest, program: Callable[[], Process], number: signal.Signals, times: int
) -> None:
    name = request.node.callspec.params["program"]
    expected = PROGRAMS[name].exit_status
    # An event process whose main thread handled the signal would miss only some of the signals.
    for _ in range(max(times, 10) if name.startswith("events") else times):
        with program() as process:
            _send_while_stopped(process, number)
            assert process.wait(40) == expected, process.log_tail()


@TIMES
@pytest.mark.parametrize("program", ["events", "events by lease"], indirect=True)
def test_an_event_process_that_was_stopped_handles_sigusr1(program: Callable[[], Process], times: int) -> None:
    with program() as process:

        def is_handled(count: int) -> bool:
            return process.log.count("there is no step of a server's clock to accept") == count

        for count in range(1, times + 1):
            _send_while_stopped(process, signal.SIGUSR1)
            eventually(partial(is_handled, count), f"signal {count} is handled")


def _send_while_stopped(process: Process, number: signal.Signals) -> None:
    process.pause()
    eventually(partial(_is_stopped, process.pid), "the process is stopped")
    process.send_signal(number)
    process.resume()


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
