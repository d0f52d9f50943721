"""Event processes that are stopped at a critical moment of an election while another process is elected.

The process is stopped before it raises the epoch, or before it claims the shard with the new epoch, or in an election
by lease before it claims the shard. When it continues, this step is refused, and the new leader is not fenced.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from services.process import Process
from services.zookeeper import ZooKeeper
from tests.fault.event_processes import fence
from tests.support.election_member import end_session
from tests.support.wait_until import eventually
from tickwheel import Queue, Tickwheel
from tickwheel.storage.fence import epoch_of
from tickwheel.storage.keys import election_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.fault

ROOT = Path(__file__).parents[2]
_REPORT_S = 30.0


class FreezingProcess(Process):
    """A process of `freezing_event_process.py`."""

    def __init__(self, url: str, namespace: str, election: str, step: str, go: Path) -> None:
        command = [sys.executable, "-m", "tests.fault.freezing_event_process"]
        super().__init__(go.name, [*command, url, namespace, election, step, str(go)], go.parent, cwd=ROOT)
        self._go = go

    @property
    def reports(self) -> list[list[str]]:
        """The words of each line that the program printed."""
        lines = [line.split() for line in self.log.splitlines()]
        return [words for words in lines if words and words[0] in ("stopped", "done", "refused")]

    @property
    def is_stopped(self) -> bool:
        """Whether the process has reported that it stops, and is stopped."""
        reports = self.reports
        return bool(reports) and reports[-1][0] == "stopped" and _state(self.pid) == "T"

    @property
    def session(self) -> tuple[int, bytes]:
        """The session at the last stop."""
        _, session, password = next(words for words in reversed(self.reports) if words[0] == "stopped")
        return int(session), bytes.fromhex(password)

    def continue_to_outcome(self, *, with_another_session: bool = False) -> str:
        """Let the process take its next step, and return the outcome."""
        new = self._go.with_suffix(".new")
        new.write_text("with another session" if with_another_session else "at once")
        new.replace(self._go)
        count = len(self.reports)
        self.resume()
        eventually(lambda: len(self.reports) > count, "the step has an outcome", _REPORT_S)
        [outcome] = self.reports[count]
        return outcome


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture
def tickwheel(tickwheel_server: PrivateServer, namespace: str) -> Iterator[Tickwheel]:
    with Tickwheel(tickwheel_server.url, namespace=namespace, shards=1) as client:
        yield client


@pytest.fixture
def watcher(zookeeper: ZooKeeper) -> Iterator[KazooClient]:
    """A separate ZooKeeper client that reads the nodes of the election."""
    client = KazooClient(zookeeper.hosts)
    client.start()
    yield client
    client.stop()
    client.close()


@contextmanager
def run_two(url: str, namespace: str, election: str, step: str, folder: Path) -> Iterator[list[FreezingProcess]]:
    """Run two processes of one election, and kill them at the end."""
    processes = [FreezingProcess(url, namespace, election, step, folder / f"go {n}") for n in range(2)]
    try:
        for process in processes:
            process.start()
        yield processes
    finally:
        for process in processes:
            process.kill()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("times", [20, pytest.param(200, marks=pytest.mark.soak)])
@pytest.mark.parametrize("step", ["epoch", "claim"])
def test_a_process_stopped_before_it_raises_or_claims_an_epoch_does_not_depose_its_successor(
    tickwheel: Tickwheel,
    tickwheel_server: PrivateServer,
    watcher: KazooClient,
    zookeeper: ZooKeeper,
    server: Any,
    tmp_path: Path,
    step: str,
    times: int,
) -> None:
    namespace, url, epochs = tickwheel._context.namespace, tickwheel_server.url, list[int]()
    node = f"/tickwheel/{namespace}/shards/0"
    queue = tickwheel.create_queue("jobs")
    with run_two(url, namespace, f"zk://{zookeeper.hosts}", step, tmp_path) as processes:
        for n in range(times):
            eventually(
                lambda: any(process.is_stopped for process in processes), f"a process stops before {step}", _REPORT_S
            )
            paused, other = processes if processes[0].is_stopped else reversed(processes)
            # The paused process loses its session, so the other process is elected.
            end_session(zookeeper.hosts, paused.session)
            eventually(lambda process=other: process.is_stopped, f"the other stops before {step}", _REPORT_S)  # type: ignore[misc]
            assert other.continue_to_outcome() == "done"
            check_leader_drives(queue)
            claimed, raised = fence(server, namespace), watcher.get(node)[1].version
            assert claimed is not None
            epochs.append(epoch_of(claimed))
            assert epochs[-1] == raised

            assert paused.continue_to_outcome(with_another_session=bool(n % 2)) == "refused"

            assert fence(server, namespace) == claimed
            assert watcher.get(node)[1].version == raised
            check_leader_drives(queue)
            end_session(zookeeper.hosts, other.session)
    assert epochs == sorted(set(epochs))


@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("times", [4, pytest.param(200, marks=pytest.mark.soak)])
def test_a_process_stopped_before_its_claim_by_lease_does_not_depose_its_successor(
    tickwheel: Tickwheel, tickwheel_server: PrivateServer, server: Any, tmp_path: Path, times: int
) -> None:
    namespace, url, epochs = tickwheel._context.namespace, tickwheel_server.url, list[int]()
    queue = tickwheel.create_queue("jobs")
    for n in range(times):
        (folder := tmp_path / f"{n}").mkdir()
        with run_two(url, namespace, "lease", "claim", folder) as processes:
            eventually(lambda: any(process.is_stopped for process in processes), "a process stops", _REPORT_S)
            paused, other = processes if processes[0].is_stopped else reversed(processes)
            # The paused process is removed from the election after a lease, so the shard is assigned to the other one.
            eventually(lambda process=other: process.is_stopped, "the other stops before its claim", _REPORT_S)  # type: ignore[misc]
            assert other.continue_to_outcome() == "done"
            check_leader_drives(queue)
            claimed = fence(server, namespace)
            assert claimed is not None
            epochs.append(epoch_of(claimed))
            assert paused.continue_to_outcome() == "refused"
            assert fence(server, namespace) == claimed
            check_leader_drives(queue)
        # Both processes were killed. The next two need not wait until their rows count as dead.
        server.delete(election_key(namespace))
    assert epochs == sorted(set(epochs))


def test_a_claim_by_lease_that_comes_after_the_end_of_its_namespace_leaves_no_key(
    tickwheel_server: PrivateServer, server: Any, namespace: str, tmp_path: Path
) -> None:
    url = tickwheel_server.url
    Tickwheel(url, namespace=namespace, shards=1).close()
    process = FreezingProcess(url, namespace, "lease", "claim", tmp_path / "go")
    process.start()
    try:
        eventually(lambda: process.is_stopped, "the process stops before its claim", _REPORT_S)
        assert fence(server, namespace) is None
        tickwheel_server.clear(namespace)
        assert process.continue_to_outcome() == "refused"
        # The process notices that the namespace no longer exists.
        assert process.wait(_REPORT_S) == 1
        assert list(server.scan_iter(match=f"{namespace}:*")) == []
    finally:
        process.kill()


def check_leader_drives(queue: Queue) -> None:
    """Check that a delayed message is promoted: a leader is at work and is not fenced."""
    id = queue.enqueue(delay=timedelta(milliseconds=1)).id
    eventually(lambda: queue.get(id).state == "pending", "the leader promotes a message")
