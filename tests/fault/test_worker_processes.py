"""`tickwheel worker`: messages whose tasks hang, block the interpreter or kill their process."""

import json
import os
import signal
import urllib.request
from operator import itemgetter
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from services.process import free_port
from tests.fault import worker_app
from tests.fault.faulty_server import FaultyServer
from tests.fault.worker_processes import Worker, WorkerDeployment, deploy_workers, is_process
from tests.support.wait_until import eventually
from tickwheel.tasks import Task

pytestmark = pytest.mark.fault


@pytest.mark.parametrize("options", [(), ("--threads", "4"), ("--processes", "2")], ids=["one", "threads", "processes"])
def test_tasks_run_and_their_results_are_kept(deployment: WorkerDeployment, options: tuple[str, ...]) -> None:
    plain = [deployment.send(worker_app.double, n) for n in range(20)]
    asynchronous = [deployment.send(worker_app.double_async, n) for n in range(20)]
    with deployment.worker(*options) as worker:
        results = [deployment.wait_for_state(id, "completed").result for id in plain + asynchronous]
        assert results == [str(2 * n) for n in range(20)] * 2
        assert worker.stop(30) == 0
    assert len(worker.record) == 40


def test_more_messages_than_a_worker_takes_in_one_turn_run_once_each(deployment: WorkerDeployment) -> None:
    # A worker process dequeues at most five batches of ten messages in one turn.
    messages = [worker_app.double.message((n,), {}) for n in range(150)]
    ids = [result.id for result in worker_app.app.declared("work").enqueue_many(messages)]
    deployment.sent |= dict.fromkeys(ids, worker_app.double)
    with deployment.worker() as worker:
        assert {deployment.wait_for_state(id, "completed").attempt for id in ids} == {1}
        assert len(worker.record) == len(messages)


def test_an_error_is_stored_and_the_task_retried_until_its_attempts_are_used_up(deployment: WorkerDeployment) -> None:
    id = deployment.send(worker_app.boom, "no such user")
    with deployment.worker() as worker:
        message = deployment.wait_for_state(id, "errored")
        assert (message.error, message.attempt) == ("ValueError: no such user", 2)
        assert len(worker.list_actions("boom")) == 2


def test_a_task_can_reject_its_message_or_ask_for_a_later_retry(deployment: WorkerDeployment) -> None:
    hopeless, later = deployment.send(worker_app.reject, "no"), deployment.send(worker_app.try_later)
    with deployment.worker():
        assert (deployment.wait_for_state(hopeless, "errored").attempt, deployment.message(hopeless).error) == (
            1,
            "rejected: no",
        )
        assert deployment.wait_for_state(later, "completed").attempt == 2


def test_a_worker_exports_metrics_of_its_tasks_and_processes(deployment: WorkerDeployment) -> None:
    port = free_port()

    def metric_value(name: str, **labels: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            page = text_string_to_metric_families(answer.read().decode())
        samples = [sample for metric in page for sample in metric.samples]
        values = [s.value for s in samples if (s.name, s.labels) == (f"tickwheel_worker_{name}", labels)]
        return values[0] if values else 0.0

    blocking = deployment.send(worker_app.block_interpreter, 1.5)
    deployment.tickwheel.queue("work").enqueue(b'{"task": "gone.task", "args": {}}', id="unknown", max_attempts=1)
    with deployment.worker("--metrics", f"127.0.0.1:{port}"):
        deployment.wait_for_state("unknown", "errored", queue="work")
        unknown = {"queue": "work", "task": "(unknown)", "outcome": "failed"}
        eventually(lambda: metric_value("tasks_total", **unknown) == 1, "the unknown task is counted", 10)
        task = {"queue": "work", "task": "tests.fault.worker_app.block_interpreter"}
        assert metric_value("tasks_total", **task, outcome="completed") == 1
        assert metric_value("wait_seconds_count", **task) == 1
        assert 1.5 <= metric_value("task_seconds_sum", **task) < 30
        assert metric_value("renewed_leases_total") >= 1
        deployment.wait_for_state(deployment.send(worker_app.boom, "no such user"), "errored")
        boom = {"queue": "work", "task": "tests.fault.worker_app.boom"}
        eventually(lambda: metric_value("tasks_total", **boom, outcome="failed") == 2, "both attempts are counted", 10)
        # The second attempt has waited for its back-off.
        assert metric_value("wait_seconds_count", **boom) == 1
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10) as answer:
            assert answer.read() == b"ok\n"
        deployment.wait_for_state(deployment.send(worker_app.poison), "errored")
        eventually(lambda: metric_value("restarts_total") == 3, "three processes were restarted", 10)
        assert metric_value("processes") == 1
    assert deployment.message(blocking).attempt == 1


def test_a_worker_logs_events_with_fields_as_json(deployment: WorkerDeployment) -> None:
    id = deployment.send(worker_app.boom, "no such user")
    with deployment.worker("--json") as worker:
        deployment.wait_for_state(id, "errored")
        assert worker.stop(30) == 0
    lines = [json.loads(line) for line in worker.log.splitlines()]
    # The lines of the supervisor, and the lines of its worker process. Two threads of the supervisor log its lines.
    supervisor = (line for line in lines if not line["event"].startswith("task "))
    ending, working = sorted(supervisor, key=itemgetter("event"))
    assert (working["event"], working["processes"], working["lanes"]) == ("working", 1, 1)
    assert (ending["event"], ending["drain_s"]) == ("ending", 25)
    first, second = (line for line in lines if line["event"] == "task failed")
    expected = {"queue": "work", "id": id, "task": "tests.fault.worker_app.boom", "error": "ValueError: no such user"}
    assert {**expected, "attempt": 1}.items() <= first.items()
    assert {**expected, "attempt": 2}.items() <= second.items()


def test_leases_are_renewed_while_a_task_blocks_the_interpreter(deployment: WorkerDeployment) -> None:
    ids = [deployment.send(worker_app.block_interpreter, 2.5), deployment.send(worker_app.double, 4)]
    with deployment.worker("--processes", "2") as worker:
        assert [deployment.wait_for_state(id, "completed").attempt for id in ids] == [1, 1]
        assert [len(worker.list_actions(action)) for action in ("began", "ended", "double")] == [1, 1, 1]


@pytest.mark.parametrize(
    "task", [worker_app.hang, worker_app.hang_async, worker_app.hang_outside], ids=lambda task: task.__name__
)
@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_task_past_its_time_limit_is_stopped_and_fails(
    deployment: WorkerDeployment, task: Task[..., object], threads: str
) -> None:
    hanging, after = deployment.send(task), deployment.send(worker_app.double, 4)
    with deployment.worker("--threads", threads):
        assert deployment.wait_for_state(hanging, "errored").error.startswith("over its time limit")
        assert deployment.wait_for_state(after, "completed").attempt == 1


# Python has no name for the signal 40, one of the real-time signals.
@pytest.mark.parametrize(("number", "name"), [(signal.SIGKILL, "SIGKILL"), (40, "signal 40")], ids=["SIGKILL", "40"])
def test_the_batch_of_a_killed_process_runs_in_another_process(
    deployment: WorkerDeployment, number: int, name: str
) -> None:
    go = deployment.folder / "go"
    running = deployment.send(worker_app.wait_for, str(go))
    others = [deployment.send(worker_app.double, n) for n in range(5)]
    with deployment.worker() as worker:
        worker.wait_until_recorded("began")
        os.kill(worker.children[0], number)
        go.touch()
        assert deployment.wait_for_state(running, "completed").attempt == 2
        # These tasks had not started: the attempt does not count.
        assert [deployment.wait_for_state(id, "completed").attempt for id in others] == [1] * 5
        assert f"ended by {name}" in worker.log


def test_a_message_that_kills_its_workers_is_errored_and_other_messages_run(deployment: WorkerDeployment) -> None:
    before = [deployment.send(worker_app.double, n) for n in range(3)]
    poison = deployment.send(worker_app.poison)
    after = [deployment.send(worker_app.double, n) for n in range(20)]
    with deployment.worker("--processes", "2") as worker:
        message = deployment.wait_for_state(poison, "errored")
        assert (message.attempt, message.error) == (3, "its worker process was ended by SIGKILL")
        assert {deployment.wait_for_state(id, "completed").attempt for id in before + after} == {1}
        assert len(worker.list_actions("poison")) == 3


def test_a_worker_process_that_closes_its_supervisor_pipe_is_replaced(deployment: WorkerDeployment) -> None:
    with deployment.worker() as worker:
        deployment.wait_for_state(deployment.send(worker_app.double, 3), "completed")
        [watched] = worker.children
        closing = deployment.send(worker_app.close_all_files)
        # The process exits if it notices the closed pipe, or is killed.
        eventually(lambda: worker.children not in ([], [watched]), "another process has started")
        deployment.wait_for_state(deployment.send(worker_app.double, 4), "completed")
        eventually(lambda: deployment.message(closing).state in ("completed", "errored"), "the closing task is settled")
        assert worker.stop(30) == 0


def test_a_process_over_its_memory_limit_is_replaced(deployment: WorkerDeployment) -> None:
    ids = [deployment.send(worker_app.grow, 200) for _ in range(3)]
    with deployment.worker("--memory-limit", "250MiB") as worker:
        pids = {deployment.wait_for_state(id, "completed").result for id in ids[:1]}
        eventually(lambda: "a new process takes over" in worker.log, "the limit is noticed")
        last = deployment.send(worker_app.grow, 1)
        assert deployment.wait_for_state(last, "completed").result not in pids
    assert {deployment.message(id).attempt for id in [*ids, last]} == {1}


@pytest.mark.parametrize("task", [worker_app.wait_until_lost], ids=["sync"])
def test_a_task_can_see_that_its_message_was_cancelled(deployment: WorkerDeployment, task: Task[..., object]) -> None:
    id = deployment.send(task)
    with deployment.worker() as worker:
        worker.wait_until_recorded("began")
        deployment.tickwheel.queue("work").cancel(id)
        worker.wait_until_recorded("lost")
        assert deployment.message(id).state == "cancelled"


def test_async_tasks_of_a_process_run_concurrently(deployment: WorkerDeployment) -> None:
    go = deployment.folder / "go"
    ids = [deployment.send(worker_app.await_for, str(go)) for _ in range(8)]
    with deployment.worker("--threads", "8") as worker:
        # A consumer may lease several of the messages, so not all tasks need to begin before the file exists.
        worker.wait_until_recorded("began", 1)
        go.touch()
        assert {deployment.wait_for_state(id, "completed").attempt for id in ids} == {1}


def test_a_worker_continues_after_its_server_was_killed_and_restarted(faulty: FaultyServer, tmp_path: Path) -> None:
    with deploy_workers(faulty.url, "outage", tmp_path) as deployment, deployment.worker() as worker:
        go = deployment.folder / "go"
        running = deployment.send(worker_app.wait_for, str(go))
        worker.wait_until_recorded("began")
        faulty.kill()
        faulty.start()
        go.touch()
        assert deployment.wait_for_state(running, "completed", 60).attempt <= 2
        after = [deployment.send(worker_app.double, n) for n in range(20)]
        assert {deployment.wait_for_state(id, "completed", 60).attempt for id in after} == {1}
        os.kill(worker.children[0], signal.SIGKILL)
        faulty.kill()
        eventually(lambda: "restarting in" in worker.log, "the worker restarts its processes", 60)
        faulty.start()
        again = deployment.send(worker_app.double, 4)
        deployment.wait_for_state(again, "completed", 60)
        children = worker.children
        with faulty.paused():
            worker.send_signal(signal.SIGTERM)
            eventually(lambda: "stopping: running tasks" in worker.log, "the worker stops")
        assert worker.wait(40) == 0
        assert not any(map(is_process, children))


@pytest.mark.parametrize(
    ("task", "error"),
    [
        (worker_app.leave, "SystemExit: as a command does"),
        (worker_app.leave_async, "RuntimeError: SystemExit: as a command does"),
        (worker_app.cancel_itself, "CancelledError"),
        (worker_app.mute, "Mute, whose text cannot be formatted"),
        (worker_app.garble, "ValueError: ?"),
    ],
    ids=lambda value: value.__name__ if hasattr(value, "__name__") else "",
)
def test_a_task_that_raises_any_exception_fails_and_the_next_task_runs(
    deployment: WorkerDeployment, task: Task[..., object], error: str
) -> None:
    raising, after = deployment.send(task), deployment.send(worker_app.double_async, 4)
    with deployment.worker() as worker:
        assert deployment.wait_for_state(raising, "errored").error.startswith(error)
        assert deployment.wait_for_state(after, "completed").attempt == 1
        assert worker.stop(30) == 0


def test_a_message_with_any_bad_payload_fails_and_the_next_task_runs(deployment: WorkerDeployment) -> None:
    name, queue = worker_app.pick.name, deployment.tickwheel.create_queue("work", update=True, **worker_app.WORK)
    payloads = {
        "nested": b"[" * 2_000,
        "nested-task": b'{"task": "%s", "args": {"of": %s}}' % (name.encode(), b"[" * 2_000),
        "picky": b'{"task": "%s", "args": {"of": {"n": -1}}}' % name.encode(),
    }
    for id, payload in payloads.items():
        queue.enqueue(payload, id=id, max_attempts=1)
    after = deployment.send(worker_app.double, 4)
    with deployment.worker() as worker:
        for id in payloads:
            assert deployment.wait_for_state(id, "errored", queue="work").error
        assert deployment.wait_for_state(after, "completed").attempt == 1
        assert worker.stop(30) == 0


@pytest.mark.parametrize("task", [worker_app.leave_a_child_and_die, worker_app.leave_a_child_and_exit])
def test_a_child_process_of_a_failed_task_is_killed(deployment: WorkerDeployment, task: Task[..., object]) -> None:
    dying, after = deployment.send(task), deployment.send(worker_app.double, 4)
    with deployment.worker() as worker:
        deployment.wait_for_state(dying, "errored")
        assert deployment.wait_for_state(after, "completed").attempt == 1
        [[_, child]] = worker.list_actions("child")
        eventually(lambda: not is_process(int(child)), "the child process has ended", 20)
        assert worker.stop(30) == 0


def test_programs_that_tasks_start_do_not_read_the_input_of_the_worker(deployment: WorkerDeployment) -> None:
    id = deployment.send(worker_app.read_input)
    with deployment.worker():
        assert deployment.wait_for_state(id, "completed").result == '""'


def test_a_process_that_cannot_start_while_the_server_is_unreachable_starts_later(
    faulty: FaultyServer, tmp_path: Path
) -> None:
    with deploy_workers(faulty.url, "unreachable", tmp_path) as deployment, deployment.worker(TIMEOUT="1") as worker:
        deployment.wait_for_state(deployment.send(worker_app.double, 1), "completed")
        faulty.kill()
        os.kill(worker.children[0], signal.SIGKILL)
        eventually(lambda: worker.log.count("restarting in") >= 3, "the worker has retried several times", 60)
        faulty.start()
        deployment.wait_for_state(deployment.send(worker_app.double, 2), "completed", 60)
        assert worker.stop(30) == 0


def test_middleware_is_called_for_processes_and_batches(deployment: WorkerDeployment) -> None:
    ids = [deployment.send(worker_app.double, n) for n in range(3)]
    with deployment.worker(MIDDLEWARE="yes") as worker:
        for id in ids:
            deployment.wait_for_state(id, "completed")
        assert worker.stop(30) == 0
        # A worker begins with a batch of one message.
        batches = [["batch", "double", "ran"], ["batch", "double", "double", "ran"]]
        assert [line[0] for line in worker.record] == ["startup", *batches[0], *batches[1], "shutdown"]
        assert worker.list_actions("batch") == [["batch", "work", "1"], ["batch", "work", "2"]]
        assert worker.list_actions("ran") == [["ran", "work", "1"], ["ran", "work", "2"]]


def test_a_worker_dequeues_only_from_the_queues_of_its_options(deployment: WorkerDeployment) -> None:
    id = deployment.send(worker_app.double, 1)
    with deployment.worker("--queue", "other", "--selector", "lottery") as worker:
        eventually(lambda: "1 queue: other (weight 5)" in worker.log, "the worker runs", 30)
        assert worker.stop(30) == 0
    assert deployment.message(id).state == "pending"


def test_messages_that_a_selector_checked_and_did_not_choose_are_released(deployment: WorkerDeployment) -> None:
    left = deployment.send(worker_app.double, 1)
    chosen = worker_app.app.declared("other").enqueue(worker_app.double.message((2,), {}).payload).id
    with deployment.worker("--selector", "tests.fault.worker_app:LastQueueSelector") as worker:
        deployment.wait_for_state(chosen, "completed", queue="other")
        assert worker.stop(30) == 0
    assert [line[1] for line in worker.list_actions("double")] == [chosen]
    assert (deployment.message(left).state, deployment.message(left).attempt) == ("pending", 0)


def test_a_message_that_is_not_a_task_fails_with_the_reason(deployment: WorkerDeployment) -> None:
    queue = deployment.tickwheel.queue("work")
    with deployment.worker() as worker:
        queue.enqueue(b"order 17", id="no-task", max_attempts=1)
        queue.enqueue(b'{"task": "gone.task", "args": {}}', id="unknown", max_attempts=1)
        for id, error in (("no-task", "the payload is not a call of a task"), ("unknown", "no task 'gone.task'")):
            assert error in deployment.wait_for_state(id, "errored", queue="work").error
        # Every client of the queue can read the error.
        assert worker_app.double.name not in queue.get("unknown").error
        assert worker.stop(30) == 0


@pytest.mark.parametrize("json", [(), ("--json",)], ids=["text", "json"])
def test_the_name_of_an_unknown_task_does_not_fill_the_log(deployment: WorkerDeployment, json: tuple[str, ...]) -> None:
    queue = deployment.tickwheel.queue("work")
    with deployment.worker(*json) as worker:
        queue.enqueue(b'{"task": "%s", "args": {}}' % (b"x" * 3_000), id="long", max_attempts=1)
        assert "no task 'xxx" in deployment.wait_for_state("long", "errored", queue="work").error
        assert worker.stop(30) == 0
    assert "work/long: this worker's app has no task 'xxx" in worker.log
    assert "x" * 100 not in worker.log


@pytest.mark.parametrize(
    ("app", "options", "error"),
    [
        ("no_such_module:app", (), "there is no module 'no_such_module'"),
        ("tests.fault.worker_app:nothing", (), "has no 'nothing'"),
        ("tests.fault.worker_app:record", (), "is not a TaskApp: its type is function"),
        ("tests.fault.worker_app", (), "must be named as module:name"),
        ("tests.fault.worker_app:app", ("--queue", "mial"), "no queue 'mial'; it has work, other"),
        ("tests.fault.worker_app:app", ("--selector", "best"), "the selector must be one of reduced-lottery"),
        ("tests.fault.worker_app:app", ("--selector", "tests.fault.worker_app:app"), "is not a class derived from"),
    ],
    ids=["module", "name", "kind", "notation", "queue", "selector", "selector-class"],
)
def test_a_worker_that_cannot_start_reports_the_reason(
    deployment: WorkerDeployment, app: str, options: tuple[str, ...], error: str
) -> None:
    with Worker(deployment.url, deployment.namespace, deployment.folder, *options, app=app) as worker:
        assert worker.wait(30) == 2
        assert any(line.startswith("tickwheel: ") and error in line for line in worker.log.splitlines())
        assert "Traceback" not in worker.log
