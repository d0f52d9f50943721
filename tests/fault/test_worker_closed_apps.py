"""`tickwheel worker`: tasks that close or move their app do not disturb the worker, nor other tasks of its process."""

import pytest

from tests.fault import worker_app
from tests.fault.worker_processes import WorkerDeployment
from tests.support.wait_until import eventually
from tickwheel.tasks import Task
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.fault


@pytest.mark.parametrize("threads", ["1", "4"])
@pytest.mark.parametrize(
    "task",
    [worker_app.close_app, worker_app.close_app_async, worker_app.close_app_in_own_loop],
    ids=["sync", "async", "own-loop"],
)
def test_a_task_that_closes_its_app_is_settled_and_so_are_all_later_tasks(
    deployment: WorkerDeployment, task: Task[..., object], threads: str
) -> None:
    closing = [deployment.send(task, n) for n in range(8)]
    with deployment.worker("--threads", threads) as worker:
        assert {deployment.wait_for_state(id, "completed").attempt for id in closing} == {1}
        later = [deployment.send(worker_app.double, 10), deployment.send(worker_app.double_async, 10)]
        assert [deployment.wait_for_state(id, "completed").attempt for id in later] == [1, 1]
        rejected = deployment.send(worker_app.reject, "no")
        assert deployment.wait_for_state(rejected, "errored").error == "rejected: no"
        # Each closing task has sent one task.
        worker.wait_until_recorded("double", len(closing) + 1)
        eventually(lambda: deployment.tickwheel.queue("work").counts()["completed"] == 18, "all tasks are completed")
        assert worker.stop(30) == 0
        assert len(worker.list_actions("double")) == len(closing) + 1
        if task is worker_app.close_app_in_own_loop:
            assert len(worker.list_actions("closed")) == len(closing)
    assert "Traceback" not in worker.log


@pytest.mark.parametrize("task", [worker_app.move_app, worker_app.move_and_close_app], ids=["moved", "closed"])
def test_a_task_that_moves_its_app_is_settled_and_so_are_all_later_tasks(
    deployment: WorkerDeployment, tickwheel_server: PrivateServer, task: Task[..., object]
) -> None:
    moving = deployment.send(task, 1)
    try:
        with deployment.worker() as worker:
            assert deployment.wait_for_state(moving, "completed").attempt == 1
            later = deployment.send(worker_app.double, 2)
            assert deployment.wait_for_state(later, "completed").attempt == 1
            assert worker.stop(30) == 0
        # The task itself and the later one. The task that it sent is in the other namespace.
        assert deployment.tickwheel.queue("work").counts()["completed"] == 2
    finally:
        tickwheel_server.clear(f"{deployment.namespace}-other")
