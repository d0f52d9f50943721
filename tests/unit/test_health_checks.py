"""The health check on the port of `--metrics`, and what a program reports there."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from services.process import free_port
from tests.support.http_page import get_page
from tickwheel.election.election import UnwatchedLeadership
from tickwheel.event_process import loop_waits
from tickwheel.event_process.loop_waits import LoopWaits
from tickwheel.event_process.metrics import ShardMetrics
from tickwheel.telemetry.metrics_server import start_metrics_server
from tickwheel.worker import health
from tickwheel.worker.health import CONSUMER_S, WorkerHealth
from tickwheel.worker.shared_state import MessageState, SharedState

pytestmark = pytest.mark.unit


@contextmanager
def serving(find_problem: Callable[[], str] | None) -> Iterator[int]:
    port = free_port()
    stop = start_metrics_server("127.0.0.1", port, ShardMetrics("tw", dict), find_problem=find_problem)
    try:
        yield port
    finally:
        stop()


def test_the_health_check_reports_the_problem_while_there_is_one() -> None:
    problem = ""
    with serving(lambda: problem) as port:
        assert get_page(port, "/healthz") == (200, "ok\n")
        problem = "the loop hangs"
        assert get_page(port, "/healthz") == (503, "the loop hangs\n")
        assert get_page(port, "/healthz?verbose") == (503, "the loop hangs\n")
        status, page = get_page(port, "/metrics")
        assert status == 200
        assert "tickwheel_shard_epoch" in page


def test_a_program_without_a_health_check_does_not_seem_healthy() -> None:
    with serving(None) as port:
        assert get_page(port, "/healthz")[0] == 404
        assert get_page(port, "/metrics")[0] == 200


def test_a_health_check_with_a_bug_does_not_seem_healthy() -> None:
    def fail() -> str:
        raise ValueError("a bug")

    with serving(fail) as port:
        assert get_page(port, "/healthz")[0] == 500


class RecordingLeadership(UnwatchedLeadership):
    """A leadership that records what it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def begin_wait(self) -> None:
        self.heard.append("begin")

    def end_wait(self) -> None:
        self.heard.append("end")


def test_a_loop_works_from_the_end_of_a_wait_until_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(loop_waits, "monotonic_ms", lambda: now)
    leadership: Any = RecordingLeadership()
    waits = LoopWaits(leadership)
    now = 2_000.0
    assert waits.working_ms == 0
    waits.end_wait()
    now = 5_000.0
    assert waits.working_ms == 3_000
    waits.begin_wait()
    now = 9_000.0
    assert waits.working_ms == 0
    assert leadership.heard == ["end", "begin"]


@dataclass
class WorkerProcess:
    """A process as the supervisor knows it."""

    popen: subprocess.Popen[bytes]
    shared_state: SharedState
    has_started: bool = True


@pytest.fixture
def state() -> Iterator[SharedState]:
    """The shared state of a process with two consumers."""
    state = SharedState(2)
    yield state
    state.close()


@pytest.fixture
def process(state: SharedState) -> WorkerProcess:
    popen: Any = type("Popen", (), {"pid": 4711})
    return WorkerProcess(popen, state)


@pytest.fixture
def worker_health(process: WorkerProcess) -> WorkerHealth:
    return WorkerHealth([None, process])


def test_a_worker_is_not_healthy_while_none_of_its_processes_has_started(
    process: WorkerProcess, worker_health: WorkerHealth
) -> None:
    process.has_started = False
    first = "no process has started yet: the first one loads the app or runs its start hooks"
    assert worker_health.find_problem() == first
    assert WorkerHealth([None]).find_problem() == first
    process.has_started = True
    assert worker_health.find_problem() == ""


def test_a_worker_whose_processes_have_all_ended_is_not_healthy_until_a_new_one_has_started(
    state: SharedState, process: WorkerProcess
) -> None:
    processes: list[WorkerProcess | None] = [process, None]
    worker_health = WorkerHealth(processes)
    worker_health.on_end("worker process 4711 ended with code 2")
    assert worker_health.find_problem() == ""
    processes[0] = None
    problem = "no process takes messages: worker process 4711 ended with code 2, and a new one has not started yet"
    assert worker_health.find_problem() == problem
    new = processes[1] = WorkerProcess(process.popen, state, has_started=False)
    assert worker_health.find_problem() == problem
    new.has_started = True
    assert worker_health.find_problem() == ""


def test_a_worker_is_healthy_while_its_consumers_come_round(state: SharedState, worker_health: WorkerHealth) -> None:
    # The second consumer has not begun.
    state.mark_round(0, time.monotonic())
    assert worker_health.find_problem() == ""


def test_a_consumer_that_does_not_come_round_is_reported(state: SharedState, worker_health: WorkerHealth) -> None:
    state.mark_round(0, time.monotonic())
    state.mark_round(1, time.monotonic() - CONSUMER_S - 1)
    assert worker_health.find_problem() == "process 4711 has neither taken messages nor run a task for 300 s"
    # It waits for the server.
    state.mark_round(1, 0.0)
    assert worker_health.find_problem() == ""


def test_a_consumer_that_runs_a_task_does_not_hang(state: SharedState, worker_health: WorkerHealth) -> None:
    state.mark_round(1, time.monotonic() - CONSUMER_S - 1)
    batch = state.of_consumer(1)[1]
    batch.begin(1, [0.0])
    assert worker_health.find_problem() != ""
    batch.start(0, 3_600.0)
    assert worker_health.find_problem() == ""
    batch.end(0, MessageState.DONE)
    assert worker_health.find_problem() != ""


def test_a_process_whose_memory_was_released_does_not_hang() -> None:
    state = SharedState(1)
    state.mark_round(0, 1.0)
    assert state.hangs(2.0)
    state.close()
    assert not state.hangs(2.0)


def test_a_supervisor_that_does_not_come_round_is_reported(
    worker_health: WorkerHealth, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker_health.on_round()
    assert worker_health.find_problem() == ""
    monkeypatch.setattr(health, "SUPERVISOR_S", -1.0)
    assert worker_health.find_problem().startswith("the supervisor has not come round for 0 s")
