"""`tickwheel worker`: processes and programs that a task starts end at the signals that usually end them."""

import pytest

from tests.fault import worker_app
from tests.fault.worker_processes import WorkerDeployment

pytestmark = pytest.mark.fault


@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_pool_of_processes_that_has_lost_one_of_them_ends(deployment: WorkerDeployment, threads: str) -> None:
    id = deployment.send(worker_app.break_pool)
    with deployment.worker("--threads", threads) as worker:
        assert deployment.wait_for_state(id, "completed").result == '"BrokenProcessPool"'
        after = deployment.send(worker_app.double, 1)
        assert deployment.wait_for_state(after, "completed").attempt == 1
        assert worker.stop(30) == 0


def test_a_program_that_a_task_interrupts_ends(deployment: WorkerDeployment) -> None:
    id = deployment.send(worker_app.interrupt_program)
    with deployment.worker() as worker:
        assert deployment.wait_for_state(id, "completed").result == "-2"
        assert worker.stop(30) == 0
