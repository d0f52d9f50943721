"""Workers and event processes whose server loses all data: they finish what they run, log the reason, and end.

They do not create the namespace again. A program that is started later does.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
import redis

from services.process import Process
from services.serving_program import SERVE, ServingProgram
from tests.fault import worker_app
from tests.fault.flaky_proxy import FlakyProxy
from tests.fault.worker_processes import ROOT, Worker
from tests.support.driven_before import drive_and_release
from tests.support.paused_process import pause
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.storage.keys import queue_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.fault

NAMESPACE = "lost"


class LosingServer:
    """A server that clients reach through a proxy."""

    def __init__(self, server: PrivateServer, empty: PrivateServer, proxy: FlakyProxy) -> None:
        self.server, self._empty, self._proxy = server, empty, proxy
        self.url = proxy.url

    def flush(self) -> None:
        """Delete all data, as FLUSHALL or a restart without persistence does."""
        with self.server.client() as client:
            client.flushall()

    def fail_over(self) -> None:
        """Let another server without data take over, as a replica that has not received the data."""
        self._proxy.target = str(self._empty.folder / "valkey.sock")
        self.server = self._empty
        self._proxy.cut()

    def let_drive_and_release(self) -> None:
        """Create the namespace, and let an event process drive it for a moment. So a worker drives it at once."""
        with Tickwheel(self.server.url, namespace=NAMESPACE) as tickwheel, self.server.client() as client:
            drive_and_release(tickwheel, self.server.url, client)

    def waiting_processes(self) -> int:
        """Return how many worker processes wait for messages of the queue `work`."""
        with self.server.client() as client:
            [_, count] = client.execute_command("PUBSUB", "SHARDNUMSUB", queue_key(NAMESPACE, 0, "work", "wake"))
        return int(count)

    def stored_keys(self) -> list[bytes]:
        with self.server.client() as client:
            return list(client.scan_iter(count=1_000))


@pytest.fixture
def losing() -> Iterator[LosingServer]:
    with PrivateServer() as server, PrivateServer() as empty, FlakyProxy(str(server.folder / "valkey.sock")) as proxy:
        yield LosingServer(server, empty, proxy)


LOSSES = pytest.mark.parametrize("lose", [LosingServer.flush, LosingServer.fail_over], ids=["flush", "failover"])
Lose = Callable[[LosingServer], None]


def errors(log: str) -> list[str]:
    return [line for line in log.splitlines() if " ERROR " in line or line.startswith("tickwheel: ")]


@contextmanager
def sending(url: str) -> Iterator[None]:
    worker_app.app.move(url=url, namespace=NAMESPACE)
    yield
    worker_app.app.close()


@LOSSES
@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_worker_of_a_lost_namespace_finishes_its_task_logs_the_reason_and_ends(
    losing: LosingServer, tmp_path: Path, lose: Lose, threads: str
) -> None:
    go = tmp_path / "go"
    with sending(losing.url), Worker(losing.url, NAMESPACE, tmp_path, "--threads", threads) as worker:
        # With two threads, the other thread notices the loss. With one, only the renewal of the lease does.
        id = worker_app.wait_for.now(str(go)).id
        worker.wait_until_recorded("began")
        lose(losing)
        eventually(lambda: "no longer exists" in worker.log, f"the loss is logged\n{worker.log}")
        assert worker.is_running
        go.touch()
        assert worker.wait(20) == 1
        assert len(worker.list_actions("ended")) == 1
        [error] = errors(worker.log)
        assert "start the worker again" in error
        assert "Traceback" not in worker.log
        assert f"work/{id} tests.fault.worker_app.wait_for: lost its lease: its task ended after" in worker.log
        assert losing.stored_keys() == []


@LOSSES
@pytest.mark.parametrize("drive", ["never", "auto"])
def test_an_idle_worker_of_a_lost_namespace_logs_the_reason_and_ends(
    losing: LosingServer, tmp_path: Path, lose: Lose, drive: str
) -> None:
    if drive == "auto":
        losing.let_drive_and_release()
    with Worker(losing.url, NAMESPACE, tmp_path, "--processes", "2", "--threads", "2", drive=drive) as worker:
        eventually(lambda: losing.waiting_processes() == 2, f"both processes wait\n{worker.log}", 30)
        if drive == "auto":
            eventually(lambda: "this program now drives namespace" in worker.log, "the child drives", 60)
        lose(losing)
        assert worker.wait(30) == 1
        [error] = errors(worker.log)
        assert "start the worker again" in error
        # No claim of a shard, and no row of the election by lease either.
        assert losing.stored_keys() == []


@LOSSES
def test_a_worker_over_grpc_of_a_lost_namespace_logs_the_reason_and_ends(
    losing: LosingServer, tmp_path: Path, lose: Lose
) -> None:
    with (
        ServingProgram(tmp_path, *SERVE, losing.url, "--namespace", NAMESPACE) as service,
        Worker(service.url, NAMESPACE, tmp_path, drive="auto") as worker,
    ):
        eventually(lambda: "tasks: " in worker.log, f"the worker has started\n{worker.log}", 30)
        lose(losing)
        assert worker.wait(30) == 1
        assert sum("start the worker again" in line for line in errors(worker.log)) == 1
        # Neither the worker nor the service has created the namespace again.
        assert losing.stored_keys() == []


def test_a_worker_process_that_is_restarted_does_not_create_the_namespace_again(
    losing: LosingServer, tmp_path: Path
) -> None:
    with Worker(losing.url, NAMESPACE, tmp_path) as worker:
        eventually(lambda: "tasks: " in worker.log, f"the worker has started\n{worker.log}", 30)
        [child] = worker.children
        pause(child)
        losing.flush()
        os.kill(child, signal.SIGKILL)
        assert worker.wait(30) == 1
        assert "ended by SIGKILL" in worker.log
        assert sum("start the worker again" in line for line in errors(worker.log)) == 1
        assert losing.stored_keys() == []


def test_a_process_that_loads_the_app_during_the_loss_does_not_create_the_namespace_again(
    losing: LosingServer, tmp_path: Path
) -> None:
    (loading := tmp_path / "loading").touch()
    with Worker(losing.url, NAMESPACE, tmp_path, "--processes", "2", LOAD_WHILE=str(loading)) as worker:
        worker.wait_until_recorded("loading")
        # The second process is started when the first has opened the namespace.
        [first] = worker.children
        loading.unlink()
        eventually(lambda: len(worker.children) == 2, f"the second process is started\n{worker.log}", 30)
        [second] = {*worker.children} - {first}
        pause(second)
        losing.flush()
        eventually(lambda: "no longer exists" in worker.log, f"the loss is logged\n{worker.log}", 30)
        os.kill(second, signal.SIGCONT)
        assert worker.wait(30) == 1
        assert losing.stored_keys() == []


def test_a_worker_that_is_started_after_the_loss_creates_the_namespace(losing: LosingServer, tmp_path: Path) -> None:
    with Worker(losing.url, NAMESPACE, tmp_path) as worker:
        eventually(lambda: "tasks: " in worker.log, f"the worker has started\n{worker.log}", 30)
        losing.flush()
        assert worker.wait(20) == 1
        worker.start()
        with sending(losing.url):
            id = worker_app.double.now(2).id
            queue = worker_app.app.declared("work")
            eventually(lambda: queue.get(id).state == "completed", "the task is completed")
        assert worker.stop(30) == 0


def test_a_worker_of_an_embedded_server_that_loses_its_data_ends(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with (
        Tickwheel(data_dir=data_dir, namespace=NAMESPACE, drive=False) as tickwheel,
        Worker("", NAMESPACE, tmp_path, "--data-dir", str(data_dir)) as worker,
    ):
        eventually(lambda: "driven by a child process" in worker.log, f"the worker has started\n{worker.log}", 30)
        assert tickwheel._processes.server is not None
        with redis.Redis.from_url(tickwheel._processes.server.url) as client:
            client.flushall()
        assert worker.wait(30) == 1
        assert sum("start the worker again" in line for line in errors(worker.log)) == 1


@LOSSES
@pytest.mark.parametrize("has_lock", [True, False], ids=["lock", "lease"])
def test_an_event_process_of_a_lost_namespace_logs_the_reason_and_ends(
    losing: LosingServer, tmp_path: Path, lose: Lose, has_lock: bool
) -> None:
    options = ("--lock", str(tmp_path / "lock")) if has_lock else ()
    with (
        Tickwheel(losing.url, namespace=NAMESPACE, shards=4) as tickwheel,
        event_process(losing.url, tmp_path, *options) as process,
    ):
        tickwheel.queue("jobs").enqueue(delay=timedelta(milliseconds=100))
        eventually(lambda: tickwheel.queue("jobs").counts()["pending"], f"the message is promoted\n{process.log}")
        lose(losing)
        assert process.wait(30) == 1
        [error] = errors(process.log)
        assert "FLUSHALL" in error
        assert "Traceback" not in process.log
        # No claim of a shard, and no row of an election by lease either.
        assert losing.stored_keys() == []


@pytest.mark.parametrize("has_lock", [True, False], ids=["lock", "lease"])
def test_an_event_process_that_stands_by_ends_when_its_namespace_is_lost(
    losing: LosingServer, tmp_path: Path, has_lock: bool
) -> None:
    # The namespace has one shard, so one of the two processes stands by in an election by lease, too.
    options = ("--lock", str(tmp_path / "lock")) if has_lock else ()
    with event_process(losing.url, tmp_path, *options) as leader:
        eventually(lambda: "elected" in leader.log, f"the process leads\n{leader.log}")
        with event_process(losing.url, tmp_path / "other", *options) as second:
            eventually(lambda: "takes part in the election" in second.log, "the second process has started")
            losing.flush()
            assert [leader.wait(30), second.wait(30)] == [1, 1]
            assert losing.stored_keys() == []


@contextmanager
def event_process(url: str, folder: Path, *options: str) -> Iterator[Process]:
    command = [sys.executable, "-m", "tickwheel", "events", "--url", url, "--namespace", NAMESPACE, *options]
    with Process("events", command, folder, cwd=ROOT) as process:
        eventually(lambda: "takes part in the election" in process.log, f"it has started\n{process.log}", 30)
        yield process


PROGRAM = """
import sys
from tickwheel.tasks import TaskApp

app = TaskApp(sys.argv[1], namespace=sys.argv[2], drive=True)
app.queue("jobs")
app.tickwheel.create_queue("jobs")
print("ready", flush=True)
sys.stdin.read()
"""


def test_the_event_process_of_a_program_ends_and_waits_until_a_program_creates_the_namespace_again(
    losing: LosingServer, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with (
        log.open("w") as stderr,
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, losing.url, NAMESPACE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
        ) as program,
    ):
        assert program.stdout is not None
        assert program.stdout.readline() == b"ready\n"
        with Tickwheel(losing.url, namespace=NAMESPACE) as tickwheel:
            await_promotion(tickwheel)
        losing.flush()
        eventually(lambda: "the namespace does not exist" in log.read_text(), "the program waits again", 30)
        assert losing.stored_keys() == []
        assert errors(log.read_text()) == []
        with Tickwheel(losing.url, namespace=NAMESPACE) as tickwheel:
            await_promotion(tickwheel)
        program.kill()


def await_promotion(tickwheel: Tickwheel) -> None:
    queue = tickwheel.queue("jobs")
    queue.enqueue(delay=timedelta(milliseconds=100))
    [message] = queue.dequeue(wait=timedelta(seconds=20))
    message.complete()
