"""`tickwheel worker` and `tickwheel serve` drive a namespace that no event process drives, and hand it over to one."""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from services.kafka import Kafka
from services.process import Process
from services.serving_program import SERVE, ServingProgram
from tests.fault import worker_app
from tests.fault.event_processes import EventProcessChild
from tests.fault.shard_owners import LeaseOwners
from tests.fault.worker_processes import Worker, is_process
from tests.support.kafka_topics import read_topic
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.client.driver_watch import QUIET_MS
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.fault

SHARDS = 4
HOST = socket.gethostname()
# A lease, and the time of a start on a busy machine.
SETTLED_S = 60.0
StartWorker = Callable[..., Worker]


@pytest.fixture
def tickwheel(tickwheel_server: PrivateServer, namespace: str) -> Iterator[Tickwheel]:
    worker_app.app.move(url=tickwheel_server.url, namespace=namespace)
    with Tickwheel(tickwheel_server.url, namespace=namespace, shards=SHARDS) as client:
        yield client
    worker_app.app.close()


@pytest.fixture
def leaders(tickwheel: Tickwheel, server: Any) -> LeaseOwners:
    return LeaseOwners(tickwheel, server)


@pytest.fixture
def start(tickwheel: Tickwheel, tickwheel_server: PrivateServer, tmp_path: Path) -> Iterator[StartWorker]:
    """Start workers, and stop them at the end of the test."""
    with ExitStack() as stack:

        def start_worker(*options: str, url: str = tickwheel_server.url, drive: str = "auto") -> Worker:
            folder = tmp_path / f"worker {len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            return stack.enter_context(Worker(url, tickwheel._context.namespace, folder, *options, drive=drive))

        yield start_worker


def children(process: Process) -> set[str]:
    """Return the names of the children of a process as they are stored in the shards that they drive."""
    pids = {int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()}
    threads = Path(f"/proc/{process.pid}/task").iterdir()
    pids |= {int(pid) for thread in threads for pid in (thread / "children").read_text().split()}
    return {f"{HOST}:{pid}" for pid in pids}


def wait_for_driver(leaders: LeaseOwners, *processes: Process) -> str:
    """Wait until one child of one of these processes drives all shards. Return the name of the child."""

    def is_driven() -> bool:
        names = set(leaders.now())
        return len(names) == 1 and any(names <= children(process) for process in processes)

    eventually(is_driven, "a child drives all shards", SETTLED_S)
    return leaders.now()[0]


def pid_of(name: str) -> int:
    return int(name.rpartition(":")[2])


def test_delayed_tasks_of_a_worker_run_without_an_event_process(start: StartWorker, leaders: LeaseOwners) -> None:
    worker = start("--threads", "3")
    for n in range(3):
        worker_app.double.later(timedelta(milliseconds=300), n)
    eventually(lambda: len(worker.list_actions("double")) == 3, "the tasks run", SETTLED_S)
    child = wait_for_driver(leaders, worker)
    assert "no event process drives" not in worker.log
    worker.stop(60)
    assert not is_process(pid_of(child))
    assert leaders.now() == [""] * SHARDS


def test_another_worker_drives_after_the_driving_one_is_killed(start: StartWorker, leaders: LeaseOwners) -> None:
    one = start()
    child = wait_for_driver(leaders, one)
    another = start()
    one.kill()
    eventually(lambda: not is_process(pid_of(child)), "the child ends with its worker")
    assert wait_for_driver(leaders, another) != child
    worker_app.double.later(timedelta(milliseconds=300), 1)
    eventually(lambda: another.list_actions("double") != [], "the task runs", SETTLED_S)


def test_a_killed_child_is_started_again(start: StartWorker, leaders: LeaseOwners) -> None:
    worker = start()
    child = wait_for_driver(leaders, worker)
    os.kill(pid_of(child), signal.SIGKILL)
    eventually(lambda: leaders.now()[0] not in ("", child), "another child drives", SETTLED_S)
    assert wait_for_driver(leaders, worker) != child


def test_an_event_process_takes_all_shards_and_a_worker_drives_again_after_it(
    tickwheel: Tickwheel, tickwheel_server: PrivateServer, start: StartWorker, leaders: LeaseOwners, tmp_path: Path
) -> None:
    worker = start()
    wait_for_driver(leaders, worker)
    with EventProcessChild(
        tickwheel_server.url, tickwheel._context.namespace, tmp_path / "events", election="lease"
    ) as events:
        leaders.settle(events, within=SETTLED_S)
        events.stop()
    wait_for_driver(leaders, worker)


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_service_drives(
    tickwheel: Tickwheel, tickwheel_server: PrivateServer, leaders: LeaseOwners, tmp_path: Path, processes: str
) -> None:
    where = (tickwheel_server.url, "--namespace", tickwheel._context.namespace, "--drive", "auto")
    with ServingProgram(tmp_path, *SERVE, *where, "--processes", processes) as service:
        child = wait_for_driver(leaders, service)
        service.kill()
        eventually(lambda: not is_process(pid_of(child)), "the child ends with its service")


def test_shards_are_released_when_a_queue_gets_a_sink(
    tickwheel: Tickwheel, start: StartWorker, leaders: LeaseOwners
) -> None:
    worker = start()
    child = wait_for_driver(leaders, worker)
    tickwheel.create_queue("forwarded", sink="kafka://topic")
    eventually(lambda: leaders.now() == [""] * SHARDS, "the shards are released", SETTLED_S)
    eventually(lambda: "queue 'forwarded' delivers to a sink" in worker.log, "the worker logs the reason")
    assert not is_process(pid_of(child))
    assert "ended with code" not in worker.log


def test_a_worker_with_brokers_drives_and_serves_sinks(
    tickwheel: Tickwheel, start: StartWorker, leaders: LeaseOwners, kafka: Kafka, topic: str
) -> None:
    queue = tickwheel.create_queue("forwarded", sink=f"kafka://{topic}")
    worker = start("--kafka", kafka.bootstrap)
    queue.enqueue(b"x", id="later", delay=timedelta(milliseconds=300))
    eventually(lambda: queue.get("later").state == "completed", "the message is sent", SETTLED_S)
    [record] = read_topic(kafka, topic)
    assert record.key() == b"later"
    wait_for_driver(leaders, worker)


def logged_at(process: Process, text: str) -> datetime:
    """Return the time of the first line of the log with the text."""
    line = next(line for line in process.log.splitlines() if text in line)
    return datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC)


def test_a_worker_that_never_drives_warns_at_its_start(start: StartWorker, leaders: LeaseOwners) -> None:
    worker = start(drive="never")
    warning = "no event process drives"
    eventually(lambda: warning in worker.log, "the worker warns", SETTLED_S)
    assert logged_at(worker, warning) - logged_at(worker, "timing wheel: ") < timedelta(milliseconds=QUIET_MS / 2)
    assert leaders.now() == [""] * SHARDS


def test_a_namespace_of_lock_files_is_left_to_event_processes(
    tickwheel: Tickwheel, tickwheel_server: PrivateServer, start: StartWorker, leaders: LeaseOwners, tmp_path: Path
) -> None:
    namespace = tickwheel._context.namespace
    with EventProcessChild(tickwheel_server.url, namespace, tmp_path / "lock") as events:
        name = f"{HOST}:{events.pid}"
        eventually(lambda: leaders.read("owner") == [name] * SHARDS, "the event process drives", SETTLED_S)
        worker = start()
        reason = "have an election of the kind 'lockfile' (`tickwheel events` takes its shards over)"
        eventually(lambda: reason in worker.log, "the worker logs the reason", SETTLED_S)
    assert leaders.read("owner") == [name] * SHARDS


def test_a_worker_of_a_service_does_not_drive(
    tickwheel: Tickwheel, tickwheel_server: PrivateServer, start: StartWorker, leaders: LeaseOwners, tmp_path: Path
) -> None:
    where = (tickwheel_server.url, "--namespace", tickwheel._context.namespace)
    with ServingProgram(tmp_path, *SERVE, *where) as service:
        worker = start(url=service.url)
        eventually(lambda: "does not drive namespace" in worker.log, "the worker logs the reason", SETTLED_S)
        assert "a client of the service cannot drive" in worker.log
        assert leaders.now() == [""] * SHARDS
