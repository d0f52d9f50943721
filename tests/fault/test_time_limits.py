"""`tickwheel worker`: what counts for the time limit of a task. The tasks of these tests have a limit of 2 s."""

import pytest

from tests.fault import worker_app
from tests.fault.worker_processes import WorkerDeployment

pytestmark = pytest.mark.fault


@pytest.mark.parametrize(("before_s", "after_s"), [(3, 0), (0, 3)], ids=["before", "after"])
def test_the_time_of_a_middleware_does_not_count_for_the_task(
    deployment: WorkerDeployment, before_s: float, after_s: float
) -> None:
    # The task and the middleware take longer than the limit and the two seconds after which a process is killed.
    id = deployment.send(worker_app.take_time, 1.5, before_s, after_s)
    with deployment.worker():
        assert deployment.wait_for_state(id, "completed").attempt == 1


@pytest.mark.parametrize(("before_s", "after_s"), [(600, 0), (0, 600)], ids=["before", "after"])
def test_a_process_whose_middleware_hangs_is_killed(
    deployment: WorkerDeployment, before_s: float, after_s: float
) -> None:
    id = deployment.send(worker_app.take_time, 0, before_s, after_s)
    with deployment.worker():
        assert deployment.wait_for_state(id, "errored").error.startswith("over its time limit, and did not stop")
        deployment.wait_for_state(deployment.send(worker_app.double, 2), "completed")


@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_task_that_returns_an_awaitable_has_one_limit_in_total(deployment: WorkerDeployment, threads: str) -> None:
    id = deployment.send(worker_app.take_time_twice, 1.2)
    with deployment.worker("--threads", threads):
        assert deployment.wait_for_state(id, "errored").error == "over its time limit of 2 s"
