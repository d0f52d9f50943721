"""`tickwheel worker`: the leases of a worker whose queue or namespace is deleted, and those of a recreated queue."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from tests.fault.deletion_app import app, succeed, wait_for, wait_until_lost
from tests.fault.faulty_server import FaultyServer
from tests.fault.worker_processes import Worker, supervisor_config
from tests.integration.service_thread import ServiceThread
from tests.support.wait_until import eventually
from tickwheel import NamespaceNotFound, Tickwheel
from tickwheel.tasks import Task
from tickwheel.testing import PrivateServer
from tickwheel.worker import queue_alarm
from tickwheel.worker.stats import Stats
from tickwheel.worker.supervisor import Supervisor

pytestmark = pytest.mark.fault


@pytest.fixture(params=["direct", "service"])
def url(request: pytest.FixtureRequest, tickwheel_server: PrivateServer) -> Iterator[str]:
    """The URL of the worker."""
    if request.param == "direct":
        yield tickwheel_server.url
        return
    with ServiceThread(tickwheel_server.url) as service:
        yield service.url


@pytest.fixture
def tickwheel(tickwheel_server: PrivateServer, namespace: str) -> Iterator[Tickwheel]:
    with Tickwheel(tickwheel_server.url, namespace=namespace) as client:
        yield client


def run_worker(url: str, tickwheel: Tickwheel, folder: Path, *options: str) -> Worker:
    return Worker(url, tickwheel._context.namespace, folder, *options, app="tests.fault.deletion_app:app")


def send(tickwheel: Tickwheel, task: Task[..., object], *args: object) -> str:
    """Send a task. Create its queue if necessary."""
    queue = tickwheel.create_queue(task.queue, update=True, **app.queues[task.queue].config)
    return queue.enqueue(task.message(args, {}).payload).id


def test_a_worker_renews_leases_of_a_recreated_queue_while_it_runs_a_task_of_the_deleted_queue(
    url: str, tickwheel: Tickwheel, tmp_path: Path
) -> None:
    go, queue = tmp_path / "go", tickwheel.queue("single")
    send(tickwheel, wait_for, str(go))
    with run_worker(url, tickwheel, tmp_path, "--threads", "2", "--queue", "single") as worker:
        worker.wait_until_recorded("began")
        tickwheel.delete_queue("single", purge=True)
        good = send(tickwheel, wait_for, str(go))
        worker.wait_until_recorded("began", 2)
        lease_end = queue.get(good).until
        assert lease_end is not None
        later = lease_end + timedelta(seconds=4)
        eventually(lambda: (queue.get(good).until or lease_end) > later, f"the lease is renewed\n{worker.log}", 15)
        go.touch()
        eventually(lambda: queue.get(good).state == "completed", "the task of the recreated queue completes", 15)
        assert queue.get(good).attempt == 1
        assert len(worker.list_actions("began")) == 2


def test_a_task_of_a_recreated_queue_is_completed_together_with_a_task_of_the_deleted_queue(
    faulty: FaultyServer, tmp_path: Path
) -> None:
    blocking, go = tmp_path / "blocking", tmp_path / "go"
    with Tickwheel(faulty.url, namespace="deleted") as tickwheel:
        queue = tickwheel.queue("single")
        send(tickwheel, wait_for, str(go))
        with run_worker(faulty.url, tickwheel, tmp_path, "--threads", "3", "--queue", "single") as worker:
            worker.wait_until_recorded("began")
            tickwheel.delete_queue("single", purge=True)
            good = [send(tickwheel, wait_for, str(path)) for path in (blocking, go)]
            worker.wait_until_recorded("began", 3)
            with faulty.paused():
                # The completion of the first task waits for the server. The next call then completes all others.
                blocking.touch()
                worker.wait_until_recorded("ended", 1)
                go.touch()
                worker.wait_until_recorded("ended", 3)
            eventually(
                lambda: {queue.get(id).state for id in good} == {"completed"}, f"both complete\n{worker.log}", 10
            )
            assert {queue.get(id).attempt for id in good} == {1}
            assert worker.stop(30) == 0


@pytest.mark.parametrize("deleted", ["queue", "namespace"])
def test_a_worker_loses_the_leases_of_a_deleted_queue_and_does_not_start_its_messages(
    url: str, tickwheel: Tickwheel, tmp_path: Path, deleted: str
) -> None:
    # After short tasks, a worker takes more than one message: here one, then two, then the three others.
    for _ in range(3):
        send(tickwheel, succeed)
    first, *_ = [send(tickwheel, wait_until_lost) for _ in range(3)]
    with run_worker(url, tickwheel, tmp_path, "--queue", "batch") as worker:
        worker.wait_until_recorded("began")
        if deleted == "queue":
            tickwheel.delete_queue("batch", purge=True)
        else:
            tickwheel.delete_namespace()
        worker.wait_until_recorded("lost")
        # A namespace of a server that was just started is deleted a few seconds later. Meanwhile, the worker releases
        # the messages that have waited for a second.
        texts = ("before it ran", "released before its task began")
        eventually(lambda: sum(map(worker.log.count, texts)) == 2, f"the other leases end\n{worker.log}")
        assert [words[:2] for words in worker.record] == [["began", first], ["lost", first]]
        if deleted == "queue":
            assert worker.stop(30) == 0
        else:
            assert worker.wait(30) == 1


def test_an_idle_worker_of_a_deleted_namespace_logs_one_error_and_ends(
    url: str, tickwheel: Tickwheel, tmp_path: Path
) -> None:
    send(tickwheel, wait_for, str(tmp_path))
    with run_worker(url, tickwheel, tmp_path, "--verbose", "--threads", "2") as worker:
        worker.wait_until_recorded("ended")
        tickwheel.delete_namespace()
        assert worker.wait(30) == 1
        [error] = [line for line in worker.log.splitlines() if " ERROR " in line]
        assert "start the worker again" in error
        with pytest.raises(NamespaceNotFound):
            Tickwheel(url, namespace=tickwheel._context.namespace, existing=True)


@contextmanager
def run_supervisor(url: str, tickwheel: Tickwheel, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run a worker in a thread of the test, which checks its queues ten times a second."""
    monkeypatch.setattr(queue_alarm, "CHECK_S", 0.1)
    config = supervisor_config(url, tickwheel._context.namespace, "tests.fault.deletion_app:app")
    supervisor = Supervisor(config, 1, Stats())
    thread = threading.Thread(target=supervisor.run, daemon=True)
    thread.start()
    try:
        eventually(lambda: len(supervisor._queue_alarm._numbers) == 3, "all queues are checked", 30)
        yield
    finally:
        supervisor.stop()
        thread.join(30)
    assert not thread.is_alive()


def logged(caplog: pytest.LogCaptureFixture, *events: str) -> list[tuple[str, str, str]]:
    """Return the level, the event and the queue of each log line about one of the events."""
    fields = [(line.levelname, getattr(line, "fields", {})) for line in caplog.records]
    return [(level, each["event"], each["queue"]) for level, each in fields if each.get("event") in events]


def test_an_idle_worker_logs_that_its_queue_was_deleted_and_created(
    url: str, tickwheel: Tickwheel, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lines() -> list[tuple[str, str, str]]:
        # The worker can also log that the queue is blocked during its deletion.
        return logged(caplog, "queue deleted", "queue created", "queue conflict")

    caplog.set_level(logging.INFO, "tickwheel.worker")
    with run_supervisor(url, tickwheel, monkeypatch):
        assert lines() == []
        deleted = ("WARNING", "queue deleted", "single")
        for count in (1, 2):
            tickwheel.delete_queue("single")
            eventually(lambda: lines().count(deleted) == count, "the log has the deletion")  # noqa: B023
            tickwheel.create_queue("single")
            created = ("INFO", "queue created", "single")
            eventually(lambda: lines() == [deleted, created] * count, "the log has the creation")  # noqa: B023


def test_a_worker_whose_queue_was_created_with_other_settings_logs_an_error_at_each_check(
    url: str, tickwheel: Tickwheel, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def errors() -> list[str]:
        return [line.message for line in caplog.records if line.levelname == "ERROR"]

    caplog.set_level(logging.INFO, "tickwheel.worker")
    with run_supervisor(url, tickwheel, monkeypatch):
        # The app does not declare whether this queue is exclusive.
        tickwheel.delete_queue("single")
        tickwheel.create_queue("single", exclusive_key="customer", forecast=True)
        eventually(lambda: logged(caplog, "queue created"), "the worker notices the other queue")
        tickwheel.delete_queue("exclusive")
        tickwheel.create_queue("exclusive")
        eventually(lambda: len(errors()) >= 2, "the worker logs errors")
        assert set(logged(caplog, "queue conflict")) == {("ERROR", "queue conflict", "exclusive")}
        assert "queue 'exclusive' has exclusive_key=None, which never changes; to use 'customer', delete" in errors()[0]
