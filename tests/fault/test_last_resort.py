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
from services.zookeeper import ZooKeeper
from tests.fault import worker_app
from tests.fault.event_processes import EventProcessChild
from tests.fault.shard_owners import LeaseOwners
from tests.fault.worker_processes import Worker, is_process
from tests.support.kafka_topics import read_topic
from tests.support.promotion import SETTLED_S, await_promotion
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.client.driver_watch import QUIET_MS
from tickwheel.election.zookeeper_url import ZooKeeperUrl
from tickwheel.storage.keys import election_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.fault

SHARDS = 4
HOST = socket.gethostname()
PROMOTED_AFTER = timedelta(seconds=2)
# A hand-over within a second, on a busy machine. Nobody takes over from a killed process sooner than after 3 s.
HAND_OVER_S = 3.0
StartWorker = Callable[..., Worker]
# The test is not about the time for which a worker leaves a new namespace to event processes.
DRIVEN_BEFORE = pytest.mark.usefixtures("driven_before")


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
    drives, no_longer = (f"this program {verb} namespace" for verb in ("now drives", "no longer drives"))
    eventually(lambda: drives in worker.log, "the log names the driver")
    assert no_longer not in worker.log
    # The namespace is new, so the worker waits for event processes, and logs this once.
    waits = "nobody has driven namespace"
    assert worker.log.count(waits) == 1
    assert logged_at(worker, waits) < logged_at(worker, drives)
    worker.stop(60)
    assert worker.log.count(drives) == worker.log.count(no_longer) == 1
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
    assert "nobody has driven namespace" in one.log
    assert "nobody has driven namespace" not in another.log


@DRIVEN_BEFORE
def test_a_killed_child_is_started_again(start: StartWorker, leaders: LeaseOwners) -> None:
    worker = start()
    child = wait_for_driver(leaders, worker)
    os.kill(pid_of(child), signal.SIGKILL)
    eventually(lambda: leaders.now()[0] not in ("", child), "another child drives", SETTLED_S)
    assert wait_for_driver(leaders, worker) != child


@DRIVEN_BEFORE
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


@DRIVEN_BEFORE
def test_shards_are_released_when_a_queue_gets_a_sink(
    tickwheel: Tickwheel, start: StartWorker, leaders: LeaseOwners
) -> None:
    worker = start()
    child = wait_for_driver(leaders, worker)
    tickwheel.create_queue("forwarded", sink="kafka://topic")
    eventually(lambda: leaders.now() == [""] * SHARDS, "the shards are released", SETTLED_S)
    eventually(lambda: "queue 'forwarded' delivers to a sink" in worker.log, "the worker logs the reason")
    eventually(lambda: not is_process(pid_of(child)), "the child ends")
    assert "ended with code" not in worker.log


def test_a_worker_without_brokers_leaves_a_namespace_that_relays_its_history_to_event_processes(
    tickwheel_server: PrivateServer, server: Any, namespace: str, tmp_path: Path
) -> None:
    with (
        Tickwheel(tickwheel_server.url, namespace=namespace, history="relay", drive=False) as client,
        Worker(tickwheel_server.url, namespace, tmp_path, drive="auto") as worker,
    ):
        reason = "relayed to Kafka, and this program has no Kafka brokers"
        eventually(lambda: reason in worker.log, "the worker logs the reason", SETTLED_S)
        assert set(LeaseOwners(client, server).now()) == {""}


@DRIVEN_BEFORE
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


def test_a_worker_with_brokers_relays_the_history_to_its_topic(
    tickwheel_server: PrivateServer, server: Any, namespace: str, kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    options = ("--kafka", kafka.bootstrap, "--topic", topic)
    with (
        Tickwheel(tickwheel_server.url, namespace=namespace, history="relay") as client,
        Worker(tickwheel_server.url, namespace, tmp_path, *options, drive="auto"),
    ):
        client.create_queue("others").enqueue(id="one", delay=timedelta(hours=1))
        leaders = LeaseOwners(client, server)
        eventually(lambda: "" not in leaders.now(), "the worker drives", SETTLED_S)
        assert read_topic(kafka, topic)


def logged_at(process: Process, text: str) -> datetime:
    """Return the time of the first line of the log with the text."""
    line = next(line for line in process.log.splitlines() if text in line)
    return datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC)


def test_a_worker_that_never_drives_warns_at_its_start(start: StartWorker, leaders: LeaseOwners) -> None:
    worker = start(drive="never")
    warning = "no event process drives"
    eventually(lambda: warning in worker.log, "the worker warns", SETTLED_S)
    # Later checks warn only after this time.
    assert logged_at(worker, warning) - logged_at(worker, "timing wheel: ") < timedelta(milliseconds=QUIET_MS)
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


def test_a_namespace_of_zookeeper_is_left_to_event_processes(
    tickwheel: Tickwheel,
    tickwheel_server: PrivateServer,
    start: StartWorker,
    leaders: LeaseOwners,
    zookeeper: ZooKeeper,
    tmp_path: Path,
) -> None:
    namespace, election = tickwheel._context.namespace, ZooKeeperUrl.parse(f"zk://{zookeeper.hosts}")
    reason = "have an election of the kind 'zookeeper'"
    with EventProcessChild(tickwheel_server.url, namespace, tmp_path / "zookeeper", election=election) as events:
        name = f"{HOST}:{events.pid}"
        eventually(lambda: leaders.read("owner") == [name] * SHARDS, "the event process drives", SETTLED_S)
        before = start()
        eventually(lambda: reason in before.log, "the worker logs the reason", SETTLED_S)
    # The event process was killed. A worker that starts later does not drive either.
    after = start()
    eventually(lambda: reason in after.log, "the other worker logs the reason", SETTLED_S)
    assert leaders.read("owner") == [name] * SHARDS
    assert leaders.read("election") == ["zookeeper"] * SHARDS
    assert not leaders._server.exists(election_key(namespace))


def test_a_worker_of_a_service_does_not_drive(
    tickwheel: Tickwheel, tickwheel_server: PrivateServer, start: StartWorker, leaders: LeaseOwners, tmp_path: Path
) -> None:
    where = (tickwheel_server.url, "--namespace", tickwheel._context.namespace)
    with ServingProgram(tmp_path, *SERVE, *where) as service:
        worker = start(url=service.url)
        eventually(lambda: "does not drive namespace" in worker.log, "the worker logs the reason", SETTLED_S)
        assert "a client of the service cannot drive" in worker.log
        assert leaders.now() == [""] * SHARDS


def hand_over(stopped: Process, child: str, another: Worker, leaders: LeaseOwners) -> None:
    """Stop the process whose child drives, and wait until the child of another worker drives."""
    wait_for_member(leaders, 2)
    for _ in range(3):
        wait_until_members_write(leaders)
    stopped.send_signal(signal.SIGTERM)
    eventually(lambda: child not in leaders.now() and "" not in leaders.now(), "another drives", HAND_OVER_S)
    wait_for_driver(leaders, another)


@DRIVEN_BEFORE
@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_stopped_service_hands_over(
    tickwheel: Tickwheel,
    tickwheel_server: PrivateServer,
    start: StartWorker,
    leaders: LeaseOwners,
    tmp_path: Path,
    processes: str,
) -> None:
    where = (tickwheel_server.url, "--namespace", tickwheel._context.namespace, "--drive", "auto")
    with ServingProgram(tmp_path, *SERVE, *where, "--processes", processes) as service:
        child = wait_for_driver(leaders, service)
        hand_over(service, child, start(), leaders)
        assert service.wait(60) == 0


LONG_DRAIN = ("--drain", "300s")


def begin_long_task(worker: Worker, end: Path) -> None:
    """Let the worker run a task until the file exists."""
    worker_app.wait_for.now(str(end))
    worker.wait_until_recorded("began")


@DRIVEN_BEFORE
def test_a_stopped_worker_hands_over_before_its_tasks_have_ended(
    start: StartWorker, leaders: LeaseOwners, tmp_path: Path
) -> None:
    one = start(*LONG_DRAIN)
    child = wait_for_driver(leaders, one)
    begin_long_task(one, tmp_path / "end")
    hand_over(one, child, start(), leaders)
    assert one.is_running
    (tmp_path / "end").touch()
    assert one.wait(60) == 0


@DRIVEN_BEFORE
def test_a_stopped_worker_drives_until_its_end_if_nobody_stands_by(
    tickwheel: Tickwheel, start: StartWorker, leaders: LeaseOwners, tmp_path: Path
) -> None:
    worker = start(*LONG_DRAIN)
    child = wait_for_driver(leaders, worker)
    begin_long_task(worker, tmp_path / "end")
    worker.send_signal(signal.SIGTERM)
    wait_until_it_stops(worker)
    await_promotion(tickwheel, "others", PROMOTED_AFTER)
    assert leaders.now() == [child] * SHARDS
    (tmp_path / "end").touch()
    assert worker.wait(60) == 0
    assert leaders.now() == [""] * SHARDS


def wait_until_it_stops(worker: Worker) -> None:
    eventually(lambda: "stopping: running tasks have" in worker.log, "the worker stops")


@DRIVEN_BEFORE
def test_of_two_workers_that_are_stopped_at_once_one_drives_until_both_have_ended(
    tickwheel: Tickwheel, start: StartWorker, leaders: LeaseOwners, tmp_path: Path
) -> None:
    ends = [tmp_path / "end of one", tmp_path / "end of the other"]
    workers = []
    for end in ends:
        workers.append(start(*LONG_DRAIN))
        begin_long_task(workers[-1], end)
    wait_for_member(leaders, 2)
    eventually(lambda: "" not in leaders.now(), "the children drive", SETTLED_S)
    for worker in workers:
        worker.send_signal(signal.SIGTERM)
    for worker in workers:
        wait_until_it_stops(worker)
    await_promotion(tickwheel, "others", PROMOTED_AFTER)
    # The one that drives ends first.
    driver = wait_for_driver(leaders, *workers)
    first = 0 if driver in children(workers[0]) else 1
    ends[first].touch()
    assert workers[first].wait(60) == 0
    wait_for_driver(leaders, workers[1 - first])
    await_promotion(tickwheel, "others", PROMOTED_AFTER)
    assert workers[1 - first].is_running
    ends[1 - first].touch()
    assert workers[1 - first].wait(60) == 0
    assert leaders.now() == [""] * SHARDS


@DRIVEN_BEFORE
def test_a_child_that_is_killed_while_its_worker_stops_is_started_again(
    tickwheel: Tickwheel, start: StartWorker, leaders: LeaseOwners, tmp_path: Path
) -> None:
    worker = start(*LONG_DRAIN)
    child = wait_for_driver(leaders, worker)
    begin_long_task(worker, tmp_path / "end")
    worker.send_signal(signal.SIGTERM)
    wait_until_it_stops(worker)
    os.kill(pid_of(child), signal.SIGKILL)
    eventually(lambda: child not in leaders.now(), "another child drives", SETTLED_S)
    wait_for_driver(leaders, worker)
    await_promotion(tickwheel, "others", PROMOTED_AFTER)
    (tmp_path / "end").touch()
    assert worker.wait(60) == 0


@DRIVEN_BEFORE
def test_a_worker_that_stops_drives_if_the_one_that_drove_is_killed(
    tickwheel: Tickwheel, start: StartWorker, leaders: LeaseOwners, tmp_path: Path
) -> None:
    one = start(*LONG_DRAIN)
    begin_long_task(one, tmp_path / "end")
    wait_for_driver(leaders, one)
    another = start()
    wait_for_member(leaders, 2)
    one.send_signal(signal.SIGTERM)
    child = wait_for_driver(leaders, another)
    # Otherwise the worker would start another child, or the child would release its shards.
    another.pause()
    os.kill(pid_of(child), signal.SIGKILL)
    another.kill()
    eventually(lambda: child not in leaders.now(), "another child drives", SETTLED_S)
    wait_for_driver(leaders, one)
    await_promotion(tickwheel, "others", PROMOTED_AFTER)
    (tmp_path / "end").touch()
    assert one.wait(60) == 0


def wait_for_member(leaders: LeaseOwners, count: int) -> None:
    """Wait until this number of processes takes part in the election."""
    key = election_key(leaders._namespace)
    eventually(lambda: leaders._server.hlen(key) > count, f"{count} processes take part", SETTLED_S)


def wait_until_members_write(leaders: LeaseOwners) -> None:
    """Wait until each process that takes part in the election has written its row again."""
    key = election_key(leaders._namespace)
    before = leaders._server.hgetall(key)
    before.pop(b"assignment", None)
    eventually(lambda: not before.items() & leaders._server.hgetall(key).items(), "all write their rows", SETTLED_S)


@DRIVEN_BEFORE
def test_sigusr1_for_all_processes_of_a_worker_ends_none_of_them(start: StartWorker, leaders: LeaseOwners) -> None:
    worker = start()
    child = wait_for_driver(leaders, worker)
    pids = [worker.pid, *worker.children]
    for pid in pids:
        os.kill(pid, signal.SIGUSR1)
    worker_app.double.now(1)
    eventually(lambda: worker.list_actions("double") != [], "the task runs", SETTLED_S)
    assert [worker.pid, *worker.children] == pids
    assert leaders.now() == [child] * SHARDS
