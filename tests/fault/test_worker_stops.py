"""`tickwheel worker`: the attempts of tasks that a stop or a kill of their processes ends."""

import os
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from tests.fault import celery_lease_app, worker_app
from tests.fault.faulty_server import FaultyServer
from tests.fault.worker_processes import Worker, WorkerDeployment, deploy_workers, is_process
from tests.integration.service_thread import ServiceThread
from tests.support.wait_until import eventually
from tickwheel import Tickwheel

pytestmark = pytest.mark.fault


def kill_supervisor(worker: Worker) -> int:
    """Kill the supervisor of a worker. Return the pid of its process."""
    [child] = worker.children
    worker.send_signal(signal.SIGKILL)
    worker.wait(10)
    return child


def test_processes_of_a_killed_worker_exit_and_its_messages_are_redelivered(deployment: WorkerDeployment) -> None:
    go = deployment.folder / "go"
    running = deployment.send(worker_app.wait_for, str(go))
    with deployment.worker("--drain", "100ms") as worker:
        worker.wait_until_recorded("began")
        child = kill_supervisor(worker)
        eventually(lambda: not is_process(child), "the process has ended", 10)
        deployment.wait_for_state(running, "pending")
        go.touch()
    with deployment.worker():
        assert deployment.wait_for_state(running, "completed").attempt == 2


@pytest.mark.parametrize("fails", [False, True], ids=["loads", "fails"])
def test_a_process_whose_supervisor_is_killed_while_the_app_loads_ends_without_a_traceback(
    deployment: WorkerDeployment, fails: bool
) -> None:
    loading = deployment.folder / "loading"
    loading.touch()
    environment = {"LOAD_WHILE": str(loading)} | ({"FAIL_LOAD": "yes"} if fails else {})
    with deployment.worker("--drain", "60s", **environment) as worker:
        worker.wait_until_recorded("loading")
        child = kill_supervisor(worker)
        loading.unlink()
        eventually(lambda: not is_process(child), "the process has ended", 30)
        errors = [line for line in worker.log.splitlines() if "is reserved for the app's schedules" in line]
    assert worker.log.splitlines() == errors
    assert bool(errors) == fails


def test_a_process_whose_supervisor_is_killed_while_a_task_runs_settles_its_messages_and_ends_without_a_traceback(
    deployment: WorkerDeployment,
) -> None:
    go = deployment.folder / "go"
    running = deployment.send(worker_app.wait_for, str(go))
    others = [deployment.send(worker_app.double, n) for n in range(3)]
    with deployment.worker("--drain", "60s") as worker:
        worker.wait_until_recorded("began")
        child = kill_supervisor(worker)
        go.touch()
        eventually(lambda: not is_process(child), "the process has ended", 30)
    assert "Traceback" not in worker.log
    assert deployment.message(running).state == "completed"
    assert [(deployment.message(id).state, deployment.message(id).attempt) for id in others] == [("pending", 0)] * 3


def test_a_terminated_worker_finishes_running_tasks_and_releases_the_others(deployment: WorkerDeployment) -> None:
    go = deployment.folder / "go"
    running = deployment.send(worker_app.wait_for, str(go))
    others = [deployment.send(worker_app.double, n) for n in range(3)]
    with deployment.worker() as worker:
        worker.wait_until_recorded("began")
        worker.send_signal(signal.SIGTERM)
        eventually(lambda: "stopping: running tasks" in worker.log, "the worker stops")
        go.touch()
        assert worker.wait(20) == 0
        assert deployment.message(running).state == "completed"
        assert [(deployment.message(id).state, deployment.message(id).attempt) for id in others] == [("pending", 0)] * 3


def end_by_second_signal(worker: Worker) -> None:
    worker.send_signal(signal.SIGTERM)
    eventually(lambda: "stopping: running tasks" in worker.log, "the worker stops")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(20) == 0


def end_by_drain_timeout(worker: Worker) -> None:
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(20) == 0


def lengthen_backoff(deployment: WorkerDeployment) -> None:
    """Give the queue of the tasks a back-off, so that only a message without a back-off is pending immediately."""
    days = timedelta(days=300)
    deployment.tickwheel.create_queue("work", update=True, backoff=days, backoff_max=days)


@pytest.mark.parametrize(
    ("end", "drain"), [(end_by_second_signal, "60s"), (end_by_drain_timeout, "100ms")], ids=["second-signal", "drain"]
)
def test_an_attempt_that_has_begun_counts_if_the_stop_of_the_worker_ends_it(
    deployment: WorkerDeployment, end: Callable[[Worker], None], drain: str
) -> None:
    never = str(deployment.folder / "never")
    running = deployment.send(worker_app.wait_for, never)
    untouched = [deployment.send(worker_app.double, n) for n in range(3)]
    for attempt in (1, 2):
        with deployment.worker("--drain", drain) as worker:
            worker.wait_until_recorded("began", attempt)
            lengthen_backoff(deployment)
            end(worker)
        message = deployment.message(running)
        assert (message.state, message.attempt) == ("pending", attempt)
        assert message.error == "the worker was stopped before the task ended"
        deployment.tickwheel.create_queue("work", update=True, backoff=timedelta(0))
        if attempt == 1:
            # Only messages on which no task has begun are released.
            views = [deployment.message(id) for id in untouched]
            assert [(view.state, view.attempt) for view in views] == [("pending", 0)] * 3


def test_a_message_whose_last_attempt_is_ended_by_the_stop_of_the_worker_is_errored(
    deployment: WorkerDeployment,
) -> None:
    last = worker_app.wait_for.with_options(max_attempts=1)
    running = deployment.send(last, str(deployment.folder / "never"))
    with deployment.worker("--drain", "100ms") as worker:
        worker.wait_until_recorded("began")
        end_by_drain_timeout(worker)
    message = deployment.message(running)
    assert (message.state, message.attempt) == ("errored", 1)


def test_a_task_next_to_a_task_killed_at_its_time_limit_runs_again_immediately(deployment: WorkerDeployment) -> None:
    go = deployment.folder / "go"
    innocent = deployment.send(worker_app.wait_for, str(go))
    with deployment.worker("--threads", "2") as worker:
        worker.wait_until_recorded("began", 1)
        lengthen_backoff(deployment)
        hanging = deployment.send(worker_app.ignore_time_limit)
        deployment.wait_for_state(hanging, "errored")
        worker.wait_until_recorded("began", 3)
        message = deployment.message(innocent)
        assert (message.state, message.attempt) == ("running", 2)
        assert message.error.startswith("another task of its worker process was over its time limit")
        go.touch()
        deployment.wait_for_state(innocent, "completed")


def test_a_worker_of_many_processes_stops_in_time_although_its_server_is_unreachable(
    faulty: FaultyServer, tmp_path: Path
) -> None:
    with deploy_workers(faulty.url, "outage", tmp_path) as deployment:
        for _ in range(80):
            deployment.send(worker_app.wait_for, str(tmp_path / "never"))
        with deployment.worker("--processes", "8") as worker:
            worker.wait_until_recorded("began", 8)
            faulty.kill()
            # The calls for the messages of one process last at least 5 s.
            end_by_second_signal(worker)
            assert worker.log.count("could not settle the messages") == 8
        faulty.start()


@pytest.mark.parametrize("queues", [(), ("--queue", "work")], ids=["several-queues", "one-queue"])
@pytest.mark.parametrize("threads", ["1", "2"])
def test_an_idle_worker_stops_at_once_although_its_server_is_unreachable(
    faulty: FaultyServer, tmp_path: Path, queues: tuple[str, ...], threads: str
) -> None:
    with Worker(faulty.url, "outage", tmp_path, "--threads", threads, *queues) as worker:
        eventually(lambda: "tasks: " in worker.log, f"the worker has started\n{worker.log}", 30)
        faulty.kill()
        eventually(lambda: "retrying in" in worker.log, f"the worker retries\n{worker.log}", 30)
        worker.send_signal(signal.SIGTERM)
        # Without the stop, the call would be retried for 30 s.
        assert worker.wait(8) == 0
        assert "cannot take messages" not in worker.log
        assert "Traceback" not in worker.log


def test_a_worker_over_grpc_stops_soon_although_its_service_or_the_server_is_unreachable(
    faulty: FaultyServer, tmp_path: Path
) -> None:
    with Tickwheel(faulty.url, namespace="outage"), ServiceThread(faulty.url) as service:
        for is_service_down in (False, True):
            with Worker(service.url, "outage", tmp_path) as worker:
                eventually(lambda: "tasks: " in worker.log, f"the worker has started\n{worker.log}", 30)
                if is_service_down:
                    service.stop()
                    eventually(lambda: "retrying in" in worker.log, f"the worker retries\n{worker.log}", 30)
                else:
                    faulty.pause()
                worker.send_signal(signal.SIGTERM)
                # Without the stop, the call would be retried for 30 s.
                assert worker.wait(24) == 0
                faulty.resume()


def test_a_worker_whose_server_does_not_answer_gives_up_after_its_timeout(deployment: WorkerDeployment) -> None:
    # The app would retry for half a minute.
    with deployment.worker("--url", "redis://127.0.0.1:1", "--timeout", "200ms", TIMEOUT="30") as worker:
        assert worker.wait(25) == 3
        assert "redis://127.0.0.1:1" in worker.log


def test_a_worker_whose_server_refuses_its_queues_exits_as_other_commands_do(
    faulty: FaultyServer, tmp_path: Path
) -> None:
    with Tickwheel(faulty.url, namespace="full"), faulty.client() as server:
        server.config_set("maxmemory", "1")
    with Worker(faulty.url, "full", tmp_path) as worker:
        assert worker.wait(30) == 1
        assert "memory" in worker.log


def test_a_worker_whose_app_ends_its_process_at_the_first_start_reports_this_and_exits(
    deployment: WorkerDeployment,
) -> None:
    flag = deployment.folder / "flag"
    flag.touch()
    with deployment.worker(EXIT_IF=str(flag)) as worker:
        assert worker.wait(30) == 2
        assert "its worker process ended with code 0 before it had started" in worker.log
        assert worker.record == [["import"]]


def test_processes_that_end_with_code_0_are_restarted_after_pauses_that_the_log_reports(
    deployment: WorkerDeployment,
) -> None:
    flag = deployment.folder / "flag"
    with deployment.worker(EXIT_IF=str(flag)) as worker:
        deployment.wait_for_state(deployment.send(worker_app.double, 1), "completed")
        flag.touch()
        [child] = worker.children
        os.kill(child, signal.SIGKILL)
        worker.wait_until_recorded("import", 3)
        eventually(lambda: worker.log.count("ended with code 0; restarting in") >= 3, "the log reports each end", 30)
        flag.unlink()
        deployment.wait_for_state(deployment.send(worker_app.double, 2), "completed")
        assert worker.stop(30) == 0


def test_a_worker_that_stops_while_it_stores_the_result_of_a_moved_task_does_not_run_the_task_again(
    deployment: WorkerDeployment,
) -> None:
    app = celery_lease_app.app
    app.move(url=deployment.url, namespace=deployment.namespace)
    app.route("orders.succeed", to="tickwheel")
    sent = celery_lease_app.succeed.delay()
    app.close()
    environment = {"RESULT_BACKEND": "redis://127.0.0.1:1"}
    worker = Worker(
        deployment.url,
        deployment.namespace,
        deployment.folder,
        *("--drain", "10s"),
        app="tests.fault.celery_lease_app:app",
        **environment,
    )
    with worker:
        eventually(lambda: "cannot store the result of call" in worker.log, f"the task has succeeded\n{worker.log}", 30)
        worker.send_signal(signal.SIGTERM)
        worker.wait(30)
    message = deployment.tickwheel.queue("celery").get(sent.id)
    assert (message.state, message.attempt) == ("errored", 1)
    assert str(message.error).startswith("the task succeeded, but its result was not stored")
