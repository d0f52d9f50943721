"""Event processes stopped at the one moment that counts, between being the lowest candidate and raising the epoch, or
between that and claiming the shard by it, while another is elected: they usurp nothing, and the leader is not fenced.
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
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.fault

ROOT = Path(__file__).parents[2]
_REPORT_S = 30.0


class Freezing(Process):
    """A process of `freezing_event_process.py`."""

    def __init__(self, url: str, namespace: str, election: str, where: str, go: Path) -> None:
        command = [sys.executable, "-m", "tests.fault.freezing_event_process"]
        super().__init__(go.name, [*command, url, namespace, election, where, str(go)], go.parent, cwd=ROOT)
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
    with Tickwheel(tickwheel_server.url, namespace=namespace, shards=1) as found:
        yield found


@pytest.fixture
def watcher(zookeeper: ZooKeeper) -> Iterator[KazooClient]:
    """Looks at the election's nodes from outside."""
    client = KazooClient(zookeeper.hosts)
    client.start()
    yield client
    client.stop()
    client.close()


@contextmanager
def two(url: str, namespace: str, election: str, where: str, folder: Path) -> Iterator[list[Freezing]]:
    """Two processes of an election, killed in the end."""
    processes = [Freezing(url, namespace, election, where, folder / f"go {n}") for n in range(2)]
    try:
        for process in processes:
            process.start()
        yield processes
    finally:
        for process in processes:
            process.kill()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("times", [20, pytest.param(200, marks=pytest.mark.soak)])
@pytest.mark.parametrize("where", ["epoch", "claim"])
def test_a_process_stopped_before_it_raises_or_claims_an_epoch_usurps_nothing(
    tickwheel: Tickwheel,
    tickwheel_server: PrivateServer,
    watcher: KazooClient,
    zookeeper: ZooKeeper,
    server: Any,
    tmp_path: Path,
    where: str,
    times: int,
) -> None:
    namespace, url, epochs = tickwheel._context.namespace, tickwheel_server.url, list[int]()
    node = f"/tickwheel/{namespace}/shards/0"
    queue = tickwheel.create_queue("jobs")
    with two(url, namespace, f"zk://{zookeeper.hosts}", where, tmp_path) as processes:
        for n in range(times):
            eventually(lambda: any(each.is_stopped for each in processes), "one is about to", _REPORT_S)
            paused, other = processes if processes[0].is_stopped else reversed(processes)
            # It has lost its session, so the other is elected.
            end_session(zookeeper.hosts, paused.session)
            eventually(lambda each=other: each.is_stopped, "the other is about to", _REPORT_S)  # type: ignore[misc]
            assert other.continue_to_outcome() == "done"
            drives(queue)
            obeyed, raised = fence(server, namespace), watcher.get(node)[1].version
            assert obeyed is not None
            epochs.append(epoch_of(obeyed))
            assert epochs[-1] == raised

            assert paused.continue_to_outcome(with_another_session=bool(n % 2)) == "refused"

            assert fence(server, namespace) == obeyed
            assert watcher.get(node)[1].version == raised
            drives(queue)
            end_session(zookeeper.hosts, other.session)
    assert epochs == sorted(set(epochs))


def drives(queue: Queue) -> None:
    """Until a message that waits for its time is promoted: somebody is at work, and not fenced."""
    id = queue.enqueue(delay=timedelta(milliseconds=1)).id
    eventually(lambda: queue.get(id).state == "pending", "the leader drives")
