"""Event processes of the earlier and the present version share the shards of one namespace in one ZooKeeper election.

An election also works if a version cannot read the assignment that the other version has stored: that version then
makes a new assignment. The test notices this because shards change their leaders without need.
"""

import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from services.zookeeper import ZooKeeper
from tests.support.repeated_step import repeated
from tests.support.wait_until import eventually
from tests.upgrade.mixed_deployment import PRESENT, Component
from tickwheel import NewMessage, Queue, Tickwheel
from tickwheel.doctor import LIVE_PASSES, audit
from tickwheel.operations.shard_status import shard_statuses

pytestmark = pytest.mark.fault

SHARDS = 4
DELAYS = [timedelta(milliseconds=milliseconds) for milliseconds in (0, 5, 100, 700)]
# Long enough for a loaded machine. A shard without a leader delivers no message.
LATE_S = 30
PROBLEMS = ("ERROR", "Traceback", "cannot be read")
# The leader of each shard, as host:pid, and the epoch in which it was elected.
Claims = list[tuple[str, int]]


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """The URL of the server, or of the cluster, that the parameter names."""
    return str(request.getfixturevalue(request.param).url)


@dataclass
class Load:
    """Enqueues delayed messages and completes those that are due, one batch after the other."""

    queue: Queue
    sent: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the load in a thread. At the end, complete the remaining messages."""
        with repeated(self._step, 0.02):
            yield
        eventually(lambda: self._complete_due() == len(self.sent), "the remaining messages are completed", LATE_S)

    def wait_until_done(self) -> None:
        """Wait until all messages that have been sent so far are completed."""
        sent = set(self.sent)
        eventually(lambda: sent.issubset(self.done), "all messages are completed", LATE_S, 0.02)

    def _step(self) -> None:
        results = self.queue.enqueue_many(NewMessage(delay=delay) for delay in DELAYS * 2)
        self.sent += [result.id for result in results]
        self._complete_due()

    def _complete_due(self) -> int:
        """Complete messages that are due. Return the number of all completed messages."""
        messages = self.queue.dequeue(200)
        self.queue.complete_many(messages)
        self.done += [message.id for message in messages]
        return len(self.done)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("url", "is_present_first"),
    [
        pytest.param("tickwheel_server", False, id="server-earlier-first"),
        pytest.param("redis_cluster", True, id="cluster-present-first"),
    ],
    indirect=["url"],
)
def test_every_message_is_completed_and_only_shards_that_must_move_change_their_leader(
    earlier: str, url: str, namespace: str, zookeeper: ZooKeeper, tmp_path: Path, is_present_first: bool
) -> None:
    arguments = ["-m", "tickwheel", "events", "--namespace", namespace, "--shards", str(SHARDS)]
    arguments += ["--election", f"zk://{zookeeper.hosts}", "--session-timeout", "3s"]
    environment = {"TICKWHEEL_URL": url}
    processes = [Component(f"events-{n}", arguments, tmp_path / f"{n}", environment, ready="") for n in range(3)]
    first, second = (PRESENT, earlier) if is_present_first else (earlier, PRESENT)
    try:
        oldest, old, new = processes
        # The event process creates the namespace and the nodes of the election.
        oldest.start(first)
        with Tickwheel(url, namespace=namespace, drive=False) as client:
            old.start(first)
            claims = wait_until_shared([oldest, old], client)
            load = Load(client.create_queue("jobs"))
            with load.running():
                # In each turn, a process joins, and then the oldest process ends. In the second turn, the other version
                # takes over from a killed process. In the last turn, the other version takes over from a stopped one.
                for site, is_killed in ((second, False), (second, True), (first, True), (first, False)):
                    new.start(site)
                    before, claims = claims, wait_until_shared(processes, client)
                    assert moved(before, claims) == shards_of(new, claims)
                    must_move = shards_of(oldest, claims)
                    oldest.kill() if is_killed else oldest.stop()
                    before, claims = claims, wait_until_shared([old, new], client)
                    assert moved(before, claims) == must_move
                    load.wait_until_done()
                    oldest, old, new = old, new, oldest
            assert Counter(load.done) == Counter(load.sent)
            assert client._run(audit(client._context, passes=LIVE_PASSES)) == []
        for process in (oldest, old):
            process.stop()
    finally:
        for process in processes:
            process.kill()
    for process in processes:
        assert not any(problem in line for line in process.lines for problem in PROBLEMS), "\n".join(process.lines)


def wait_until_shared(processes: Sequence[Component], client: Tickwheel) -> Claims:
    """Wait until these processes lead all shards, with loads that differ by at most one. Return the claims."""
    owners = {owner_of(process) for process in processes}

    def shared() -> Claims | None:
        claims = [(status.owner, status.epoch) for status in client._run(shard_statuses(client._context))]
        loads = Counter(owner for owner, _ in claims)
        is_shared = loads.keys() == owners and max(loads.values()) - min(loads.values()) <= 1
        return claims if is_shared else None

    claims = eventually(shared, "the processes lead all shards evenly", LATE_S, 0.02)
    assert claims is not None
    return claims


def owner_of(process: Component) -> str:
    return f"{socket.gethostname()}:{process.process.pid}"


def shards_of(process: Component, claims: Claims) -> list[int]:
    return [shard for shard, (owner, _) in enumerate(claims) if owner == owner_of(process)]


def moved(before: Claims, after: Claims) -> list[int]:
    """Return the shards that were claimed again."""
    return [shard for shard, (then, now) in enumerate(zip(before, after, strict=True)) if then != now]
