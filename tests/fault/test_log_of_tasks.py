"""`tickwheel worker`: the log of a worker, with each task and its outcome once the server has accepted it."""

import json
import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.fault import worker_app
from tests.fault.worker_processes import Worker, WorkerDeployment
from tests.support.wait_until import eventually
from tickwheel import __version__
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.fault

NAME = "tests.fault.worker_app"


def lines_about(worker: Worker, id: str) -> list[str]:
    """Return the lines about a message: level and text, from the name of the task on."""
    found = [
        re.search(rf" ([A-Z]+) tickwheel\.worker: work/{id} {NAME}\.(.*)", line) for line in worker.log.split("\n")
    ]
    return [f"{match[1]} {match[2]}" for match in found if match]


def json_lines(worker: Worker, event: str) -> list[dict[str, Any]]:
    """Return the log lines of an event. Every line of the log must be JSON."""
    documents = [json.loads(line) for line in worker.log.splitlines()]
    return [document for document in documents if document.get("event") == event]


def test_the_log_names_each_task_and_its_outcome_and_no_argument(deployment: WorkerDeployment) -> None:
    good = deployment.send(worker_app.double, 770_077)
    bad = deployment.send(worker_app.boom, "no such user")
    with deployment.worker() as worker:
        deployment.wait_for_state(good, "completed")
        deployment.wait_for_state(bad, "errored")
        assert worker.stop(30) == 0
    received, succeeded = lines_about(worker, good)
    assert received == "INFO double: received"
    assert re.fullmatch(r"INFO double: succeeded in [0-9.]+ ms", succeeded)
    first, *between, last = lines_about(worker, bad)
    assert first == "INFO boom: received"
    # A failure is logged after it is stored, and another thread can receive the message again meanwhile.
    assert sorted(between) == [
        "INFO boom: received",
        "WARNING boom: failed, attempt 1 of 2, again immediately: ValueError: no such user",
    ]
    assert last == "ERROR boom: errored, attempts used up: ValueError: no such user"
    # One traceback for each failure.
    assert worker.log.count("raise ValueError(text)") == 2
    assert "770077" not in worker.log


def test_the_log_of_a_failure_has_the_back_off(deployment: WorkerDeployment) -> None:
    later = deployment.send(worker_app.try_later)
    rejected = deployment.send(worker_app.reject, "not today")
    hanging = deployment.send(worker_app.hang_async)
    with deployment.worker() as worker:
        deployment.wait_for_state(later, "completed")
        deployment.wait_for_state(rejected, "errored")
        deployment.wait_for_state(hanging, "errored")
        assert worker.stop(30) == 0
    # A task that retries or rejects its message on purpose has not failed by an error.
    assert (
        lines_about(worker, later)[1]
        == "INFO try_later: failed, attempt 1 of 5, again in 1.0 ms: the task asked to be tried later"
    )
    assert lines_about(worker, rejected)[1] == "INFO reject: errored, not retried: rejected: not today"
    assert lines_about(worker, hanging)[1].startswith(
        "ERROR hang_async: errored, attempts used up: over its time limit"
    )


def test_without_the_log_of_tasks_only_failures_are_logged(deployment: WorkerDeployment) -> None:
    good = deployment.send(worker_app.double, 1)
    rejected = deployment.send(worker_app.reject, "not today")
    bad = deployment.send(worker_app.boom, "no such user")
    with deployment.worker("--log-tasks", "off") as worker:
        deployment.wait_for_state(good, "completed")
        deployment.wait_for_state(rejected, "errored")
        deployment.wait_for_state(bad, "errored")
        assert worker.stop(30) == 0
    assert lines_about(worker, good) == lines_about(worker, rejected) == []
    assert [line.partition(":")[0] for line in lines_about(worker, bad)] == ["WARNING boom", "ERROR boom"]


def test_json_lines_have_the_same_as_fields(deployment: WorkerDeployment) -> None:
    good = deployment.send(worker_app.double, 1)
    bad = deployment.send(worker_app.boom, "no such user")
    with deployment.worker("--json", "--threads", "2") as worker:
        deployment.wait_for_state(good, "completed")
        deployment.wait_for_state(bad, "errored")
        assert worker.stop(30) == 0
    [working] = json_lines(worker, "working")
    expected = {
        "namespace": deployment.namespace,
        "url": deployment.url,
        "processes": 1,
        "lanes": 2,
        "app": f"{NAME}:app",
    }
    assert expected.items() <= working.items()
    assert (working["queues"], working["weights"]) == (["work", "other"], [50, 5])
    assert f"{NAME}.double" in working["tasks"]
    assert Counter(line["id"] for line in json_lines(worker, "task received")) == {good: 1, bad: 2}
    [succeeded] = json_lines(worker, "task succeeded")
    assert {"queue": "work", "id": good, "attempt": 1, "task": f"{NAME}.double"}.items() <= succeeded.items()
    assert 0 < succeeded["duration_ms"] < 5_000
    first, second = json_lines(worker, "task failed")
    expected = {
        "queue": "work",
        "id": bad,
        "task": f"{NAME}.boom",
        "max_attempts": 2,
        "error": "ValueError: no such user",
    }
    assert {**expected, "attempt": 1, "state": "pending", "again_in_s": 0}.items() <= first.items()
    assert {**expected, "attempt": 2, "state": "errored"}.items() <= second.items()
    assert "ValueError: no such user" in first["traceback"]


@pytest.mark.parametrize("options", [("--threads", "1"), ("--threads", "2")], ids=" ".join)
def test_lines_of_the_application_name_the_task_that_logs_them(
    deployment: WorkerDeployment, options: tuple[str, ...]
) -> None:
    tasks = {
        deployment.send(worker_app.log_line): f"{NAME}.log_line",
        deployment.send(worker_app.double_async, 1): f"{NAME}.double_async",
    }
    with deployment.worker("--json", *options) as worker:
        for id in tasks:
            deployment.wait_for_state(id, "completed")
        assert worker.stop(30) == 0
    documents = [json.loads(line) for line in worker.log.splitlines()]
    lines = [document for document in documents if document["logger"] == "courier"]
    assert {line["text"] for line in lines} == {"a line of the application"}
    assert {line["id"]: line["task"] for line in lines} == tasks
    assert {(line["queue"], line["attempt"]) for line in lines} == {("work", 1)}


def test_a_task_whose_lease_was_lost_is_not_logged_as_succeeded(deployment: WorkerDeployment) -> None:
    id = deployment.send(worker_app.wait_until_lost)
    with deployment.worker() as worker:
        worker.wait_until_recorded("began")
        deployment.tickwheel.queue("work").cancel(id)
        eventually(lambda: len(lines_about(worker, id)) == 2, f"the outcome is logged\n{worker.log}")
        assert worker.stop(30) == 0
    assert lines_about(worker, id)[1].startswith("WARNING wait_until_lost: lost its lease: its task ended after ")


def test_the_json_line_of_a_lost_lease_has_the_duration_and_no_success(deployment: WorkerDeployment) -> None:
    id = deployment.send(worker_app.wait_until_lost)
    with deployment.worker("--json") as worker:
        worker.wait_until_recorded("began")
        deployment.tickwheel.queue("work").cancel(id)
        eventually(lambda: json_lines(worker, "lease lost"), f"the outcome is logged\n{worker.log}")
        assert worker.stop(30) == 0
    [lost] = json_lines(worker, "lease lost")
    assert {"id": id, "task": f"{NAME}.wait_until_lost"}.items() <= lost.items()
    assert lost["duration_ms"] > 0
    assert "error" not in lost
    assert "succeeded" not in str(lost)


def test_messages_of_a_batch_that_a_stop_releases_are_logged_as_released(deployment: WorkerDeployment) -> None:
    # After a short task, a worker takes more than one message.
    deployment.send(worker_app.double, 0)
    deployment.send(worker_app.wait_for_stop)
    left = deployment.send(worker_app.double, 1)
    with deployment.worker() as worker:
        worker.wait_until_recorded("began")
        # The stop comes before the second task of the batch.
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) == 0
    assert f"work/{left}: released before its task began" in worker.log
    assert "succeeded" not in " ".join(lines_about(worker, left))


def test_a_queue_that_is_blocked_is_logged_once_and_when_it_is_unblocked(deployment: WorkerDeployment) -> None:
    queue = deployment.tickwheel.create_queue("work", update=True)
    go = deployment.folder / "go"
    with deployment.worker("--queue", "work", "--processes", "2") as worker:
        for n in (1, 2):
            # The process that runs the first task cannot take the second one.
            deployment.send(worker_app.wait_for, str(go))
            worker.wait_until_recorded("began", n)
        queue.block(enqueue=False)
        id = deployment.send(worker_app.double, 1)
        # Both processes find the queue blocked.
        go.touch()
        worker.wait_until_recorded("ended", 2)
        eventually(lambda: "its messages wait" in worker.log, f"the block is logged\n{worker.log}", 30)
        queue.unblock()
        deployment.wait_for_state(id, "completed")
        eventually(lambda: "no longer blocked" in worker.log, f"the end of the block is logged\n{worker.log}")
        assert worker.stop(30) == 0
    assert worker.log.count("its messages wait") == worker.log.count("no longer blocked") == 1


def test_the_log_begins_with_the_banner_before_any_task(deployment: WorkerDeployment) -> None:
    loading = deployment.folder / "loading"
    loading.touch()
    id = deployment.send(worker_app.double, 1)
    with deployment.worker(LOAD_WHILE=str(loading)) as worker:
        worker.wait_until_recorded("loading")
        # Whatever the supervisor does meanwhile.
        worker.send_signal(signal.SIGSTOP)
        loading.unlink()
        deployment.wait_for_state(id, "completed")
        worker.send_signal(signal.SIGCONT)
        assert worker.stop(30) == 0
    first, *others = worker.log.splitlines()
    assert f"tickwheel {__version__}, worker of {NAME}:app: 1 process" in first
    assert worker.log.count(", worker of ") == 1
    texts = [line.partition(" tickwheel.worker: ")[2] for line in others]
    assert [text.partition(": ")[0] for text in texts[:3]] == ["server", "timing wheel", "2 queues"]
    assert texts[4] == f"work/{id} {NAME}.double: received"


def test_an_app_that_disables_the_logger_of_the_worker_leaves_the_banner(deployment: WorkerDeployment) -> None:
    id = deployment.send(worker_app.double, 1)
    with deployment.worker(DISABLE_LOG="yes") as worker:
        deployment.wait_for_state(id, "completed")
        assert worker.stop(30) == 0
    assert f", worker of {NAME}:app: 1 process" in worker.log
    assert "received" not in worker.log


def test_a_worker_that_is_stopped_while_it_starts_logs_no_banner(deployment: WorkerDeployment) -> None:
    loading = deployment.folder / "loading"
    loading.touch()
    with deployment.worker(LOAD_WHILE=str(loading)) as worker:
        worker.wait_until_recorded("loading")
        worker.send_signal(signal.SIGTERM)
        eventually(lambda: "stopping: running tasks" in worker.log, "the worker stops")
        loading.unlink()
        assert worker.wait(30) == 0
    assert len(worker.log.splitlines()) == 1


def test_the_end_of_a_process_is_logged_with_the_names_of_its_tasks(deployment: WorkerDeployment) -> None:
    poison = deployment.send(worker_app.poison)
    with deployment.worker() as worker:
        deployment.wait_for_state(poison, "errored")
        running = deployment.send(worker_app.wait_for, str(deployment.folder / "never"))
        worker.wait_until_recorded("began")
        worker.send_signal(signal.SIGTERM)
        eventually(lambda: "stopping: running tasks" in worker.log, "the worker stops")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) == 0
    first, second, last = [line for line in lines_about(worker, poison) if "received" not in line]
    for number, line in ((1, first), (2, second)):
        text = f"failed, attempt {number} of 3, again immediately: its worker process was ended by SIGKILL"
        assert line == f"ERROR poison: {text}"
    assert last == "ERROR poison: errored, attempts used up (attempt 3 of 3): its worker process was ended by SIGKILL"
    assert (
        "ERROR wait_for: failed, attempt 1 of 5, again immediately: the worker was stopped before the task ended"
        in lines_about(worker, running)
    )
    assert re.search(r"worker process \d+ was ended by SIGKILL; restarting in", worker.log)


def test_the_end_of_a_process_has_the_name_of_its_task_as_a_field(deployment: WorkerDeployment) -> None:
    poison = deployment.send(worker_app.poison)
    with deployment.worker("--json") as worker:
        deployment.wait_for_state(poison, "errored")
        assert worker.stop(30) == 0
    failures = json_lines(worker, "task failed")
    expected = {"queue": "work", "id": poison, "task": f"{NAME}.poison"}
    assert [line["attempt"] for line in failures] == [1, 2, 3]
    assert all(expected.items() <= line.items() for line in failures)
    assert {line["error"] for line in failures} == {"its worker process was ended by SIGKILL"}
    assert [(line["state"], line["max_attempts"]) for line in failures][1:] == [("pending", 3), ("errored", 3)]


def test_the_banner_names_server_queues_tasks_and_concurrency_without_the_password(
    namespace: str, tmp_path: Path
) -> None:
    with PrivateServer() as server:
        with server.client() as client:
            client.config_set("requirepass", "geheim")
        url = server.url.replace("unix://", "unix://:geheim@")
        with Worker(url, namespace, tmp_path, "--processes", "2", "--threads", "3", "--queue", "work") as worker:
            eventually(lambda: "tasks: " in worker.log, f"the worker has started\n{worker.log}", 30)
            assert worker.stop(30) == 0
    assert f"worker of {NAME}:app: 2 processes with 3 threads each, 6 tasks at a time" in worker.log
    assert f"server: unix://:***@{server.url.removeprefix('unix://')}, namespace {namespace}" in worker.log
    assert "1 queue: work (weight 50); selector reduced-lottery" in worker.log
    assert "timing wheel: driven by event processes" in worker.log
    assert f"{NAME}.double, " in worker.log
    assert "geheim" not in worker.log
