"""`tickwheel worker`: processes that have done their work, and whose interpreters do not end."""

import os
import signal

import pytest

from tests.fault import worker_app
from tests.fault.worker_processes import WorkerDeployment
from tests.support.wait_until import eventually

pytestmark = pytest.mark.fault

SELECTOR = "tests.fault.worker_app:FailingSelector"


@pytest.mark.parametrize(
    "options", [("--memory-limit", "1MiB"), ("--selector", SELECTOR)], ids=["memory-limit", "selector"]
)
def test_a_process_that_a_thread_keeps_from_ending_is_replaced(
    deployment: WorkerDeployment, options: tuple[str, ...]
) -> None:
    first = deployment.send(worker_app.leave_a_thread)
    with deployment.worker(*options) as worker:
        pid = deployment.wait_for_state(first, "completed").result
        # While the process lives, it takes no other message.
        eventually(lambda: "it had not ended 10 s after its work" in worker.log, "the process is killed", 30)
        second = deployment.wait_for_state(deployment.send(worker_app.leave_a_thread), "completed")
        assert (second.result != pid, second.attempt) == (True, 1)


def test_a_worker_whose_first_process_cannot_start_and_does_not_end_reports_the_reason_and_exits(
    deployment: WorkerDeployment,
) -> None:
    loading = deployment.folder / "loading"
    loading.touch()
    with deployment.worker(LOAD_WHILE=str(loading), FAIL_LOAD="yes", LEAVE_THREAD="yes") as worker:
        worker.wait_until_recorded("loading")
        loading.unlink()
        assert worker.wait(40) == 2
        assert "is reserved for the app's schedules" in worker.log


@pytest.mark.parametrize(
    ("processes", "others"), [(1, ""), (2, "; the other process waits"), (3, "; the 2 other processes wait")]
)
def test_the_death_of_the_first_process_before_it_is_ready_is_logged_with_the_wait_of_the_others(
    deployment: WorkerDeployment, processes: int, others: str
) -> None:
    loading = deployment.folder / "loading"
    loading.touch()
    with deployment.worker("--processes", str(processes), LOAD_WHILE=str(loading)) as worker:
        worker.wait_until_recorded("loading")
        [first] = worker.children
        os.kill(first, signal.SIGKILL)
        line = f"worker process {first} was ended by SIGKILL; restarting in 0.1 s{others and f'{others} until it has'}"
        eventually(lambda: line in worker.log, f"the log names the others\n{worker.log}")
        worker.wait_until_recorded("loading", 2)
        loading.unlink()
        eventually(lambda: len(worker.children) == processes, "all processes run", 30)
        assert worker.stop(30) == 0
