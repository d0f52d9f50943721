"""Event processes of both elections for many hosts, ZooKeeper and leases, are killed, frozen, cut off or ended.

Others replace them, and a deposed leader changes nothing. Their server fails over, or its clock steps. What only one of
the elections does is in `test_election_faults.py` and `test_lease_election.py`.
"""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from services.valkey import ValkeyServer
from services.zookeeper import ZooKeeper
from tests.conftest import Contents
from tests.fault.event_processes import EventProcessChild
from tests.fault.flaky_proxy import FlakyProxy
from tests.fault.harness.deployment import Deployment, RowUnavailable
from tests.fault.harness.replicated_deployment import ReplicatedDeployment
from tests.fault.shard_owners import LeaseOwners, Owners, enqueue, wait_until_pending
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.election.zookeeper_url import ZooKeeperUrl
from tickwheel.operations.shard_status import reset_epoch
from tickwheel.storage.keys import shard_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.fault

SHARDS = 4
# Two session time-outs, or two leases.
TWO_SESSIONS_S = 8.0
HOUR_S = 3_600
Start = Callable[..., EventProcessChild]


@pytest.fixture
def url(tickwheel_server: PrivateServer) -> str:
    """The URL of the server."""
    return tickwheel_server.url


@pytest.fixture
def tickwheel(url: str, namespace: str) -> Iterator[Tickwheel]:
    with Tickwheel(url, namespace=namespace, shards=SHARDS, history="relay") as client:
        yield client


@pytest.fixture(params=["zookeeper", "lease"])
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of election."""
    return str(request.param)


@pytest.fixture
def election(kind: str, request: pytest.FixtureRequest) -> ZooKeeperUrl | str:
    if kind == "lease":
        return "lease"
    zookeeper: ZooKeeper = request.getfixturevalue("zookeeper")
    return ZooKeeperUrl.parse(f"zk://{zookeeper.hosts}")


@pytest.fixture
def start(tickwheel: Tickwheel, url: str, election: ZooKeeperUrl | str, tmp_path: Path) -> Iterator[Start]:
    """Start event processes, and kill them at the end of the test."""
    with ExitStack() as stack:

        def start_process(at: str = url) -> EventProcessChild:
            log = tmp_path / f"process {len(list(tmp_path.iterdir()))}"
            return stack.enter_context(EventProcessChild(at, tickwheel._context.namespace, log, election=election))

        yield start_process


@pytest.fixture
def owners(tickwheel: Tickwheel, server: Any, kind: str) -> Owners:
    return LeaseOwners(tickwheel, server) if kind == "lease" else Owners(tickwheel, server)


def messages_of(contents: dict[str, Any]) -> dict[str, Any]:
    """Return the keys with messages, transitions and indexes. The wheel moves the timers of the other keys."""
    return {key: value for key, value in contents.items() if key.endswith((":messages", ":events")) or ":q:" in key}


def test_a_killed_leader_is_replaced(tickwheel: Tickwheel, start: Start, owners: Owners) -> None:
    one, another = start(), start()
    owners.settle(one, another)
    epochs = owners.epochs()
    enqueue(tickwheel, 400, timedelta(seconds=2))
    one.kill()
    owners.settle(another)
    wait_until_pending(tickwheel, 400)
    assert all(now >= then for now, then in zip(owners.epochs(), epochs, strict=True))
    third = start()
    owners.settle(another, third)


def test_a_leader_that_is_stopped_hands_its_shards_over(tickwheel: Tickwheel, start: Start, owners: Owners) -> None:
    one, another = start(), start()
    owners.settle(one, another)
    enqueue(tickwheel, 400, timedelta(seconds=1))
    # The process waits until others take over, not for a fixed time: under a second, or longer on a busy machine.
    assert one.stop(within=5.0) == 0
    # The process has left the election, so its successor does not wait for the end of a session or lease of 4 s.
    owners.settle(another, within=3.0)
    wait_until_pending(tickwheel, 400)
    assert another.stop(within=5.0) == 0


def test_a_leader_frozen_past_its_session_changes_nothing_when_it_wakes(
    tickwheel: Tickwheel, start: Start, owners: Owners, contents: Contents
) -> None:
    namespace = tickwheel._context.namespace
    frozen = start()
    owners.settle(frozen)
    enqueue(tickwheel, 1_000, timedelta(seconds=3))
    frozen.pause()
    successor = start()
    owners.settle(successor)
    wait_until_pending(tickwheel, 1_000)
    epochs = owners.epochs()
    before = messages_of(contents(namespace))
    # The process wakes with timers in memory.
    frozen.resume()
    owners.settle(frozen, successor, within=60)
    assert all(now >= then for now, then in zip(owners.epochs(), epochs, strict=True))
    assert messages_of(contents(namespace)) == before
    enqueue(tickwheel, 100, timedelta(seconds=1))
    wait_until_pending(tickwheel, 1_100)


def test_a_leader_that_cannot_reach_the_server_is_replaced_until_it_reconnects(
    tickwheel: Tickwheel, tickwheel_server: PrivateServer, start: Start, owners: Owners
) -> None:
    with FlakyProxy(str(tickwheel_server.folder / "valkey.sock"), keeps_requests=False) as proxy:
        cut_off, another = start(proxy.url), start()
        owners.settle(cut_off, another)
        proxy.stall()
        owners.settle(another)
        enqueue(tickwheel, 400, timedelta(seconds=1))
        wait_until_pending(tickwheel, 400)
        proxy.go_on()
        owners.settle(cut_off, another, within=60)


def test_the_other_kind_of_election_is_refused_until_a_reset(
    tickwheel: Tickwheel,
    tickwheel_server: PrivateServer,
    start: Start,
    owners: Owners,
    kind: str,
    zookeeper: ZooKeeper,
    server: Any,
    tmp_path: Path,
) -> None:
    one = start()
    owners.settle(one)
    fences = owners.fences()
    other = ZooKeeperUrl.parse(f"zk://{zookeeper.hosts}") if kind == "lease" else "lease"
    arguments = (tickwheel_server.url, tickwheel._context.namespace)
    with EventProcessChild(*arguments, tmp_path / "refused", election=other) as refused:
        assert refused.wait(20) == 1
        assert f"ELECTION the shard is driven by the election kind {kind}" in refused.log
        assert "run `tickwheel shards reset-epoch`" in refused.log
    # The process that drives has not noticed.
    assert owners.fences() == fences
    assert one.stop(within=5.0) == 0
    for shard in range(SHARDS):
        assert tickwheel._run(reset_epoch(tickwheel._context, shard))
    with EventProcessChild(*arguments, tmp_path / "present", election=other) as present:
        Owners(tickwheel, server).settle(present)
        enqueue(tickwheel, 100, timedelta(milliseconds=100))
        wait_until_pending(tickwheel, 100)


class TestFailover:
    """The server has a replica, which may lag."""

    @pytest.fixture
    def place(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicatedDeployment]:
        with ReplicatedDeployment(tmp_path_factory.mktemp("replicated"), proxied=True, faked="") as started:
            yield started

    @pytest.fixture
    def url(self, place: ReplicatedDeployment) -> str:
        """The URL of the primary, also after a failover."""
        return place.driver_url

    @pytest.fixture
    def server(self, url: str) -> Iterator[Any]:
        with redis.Redis.from_url(url, protocol=2) as client:
            yield client

    @pytest.mark.timeout(300)
    def test_after_a_failover_that_loses_claims_each_shard_has_one_leader_again(
        self, tickwheel: Tickwheel, start: Start, owners: Owners, place: ReplicatedDeployment
    ) -> None:
        one, another = start(), start()
        owners.settle(one, another)
        epochs = owners.epochs()
        enqueue(tickwheel, 400, timedelta(seconds=1))
        [replica] = place.set.replicas
        eventually(lambda: stored_messages(replica, tickwheel) == 400, "the replica has all messages")
        place.link.stall()
        # The replica has neither the claims of this process nor its row of an election by lease.
        third = start()
        owners.settle(one, another, third)
        enqueue(tickwheel, 100, timedelta(seconds=1))
        primary = place.server
        primary.kill()
        place.fail_over()
        place.rejoin(primary)
        owners.settle(one, another, third, within=60)
        assert all(now >= then for now, then in zip(owners.epochs(), epochs, strict=True))
        wait_until_pending(tickwheel, 400)
        enqueue(tickwheel, 400, timedelta(seconds=1))
        wait_until_pending(tickwheel, 800)


class TestClockStep:
    """The clock of the server steps, while the clock of the hosts does not."""

    @pytest.fixture
    def place(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
        try:
            place = Deployment(tmp_path_factory.mktemp("stepped"), proxied=False, faked="server")
        except RowUnavailable as reason:
            pytest.skip(str(reason))
        with place:
            yield place

    @pytest.fixture
    def url(self, place: Deployment) -> str:
        """The URL of the server."""
        return place.url

    @pytest.fixture
    def server(self, place: Deployment) -> Iterator[Any]:
        with place.client() as client:
            yield client

    @pytest.mark.parametrize("seconds", [HOUR_S, -HOUR_S], ids=["forward", "back"])
    def test_a_step_of_the_clock_moves_no_shard_and_delays_no_takeover(
        self, tickwheel: Tickwheel, start: Start, owners: Owners, place: Deployment, seconds: int
    ) -> None:
        one, another = start(), start()
        owners.settle(one, another)
        before = owners.now()
        enqueue(tickwheel, 400, timedelta(seconds=2))
        place.step_clock(seconds)
        until = time.monotonic() + TWO_SESSIONS_S
        eventually(lambda: owners.now() != before or time.monotonic() > until, "two sessions pass", 60)
        assert owners.now() == before
        one.kill()
        owners.settle(another, within=20.0)
        place.step_clock(0)
        # After the step back, the driver waits for due times in an hour, and notices the next step up to a minute
        # later. Messages in all shards wake it.
        enqueue(tickwheel, 100, timedelta(seconds=2))

        def are_promoted() -> bool:
            accept_clock_if_held(another)
            return tickwheel.queue("jobs").counts()["pending"] == 500

        eventually(are_promoted, "all messages are promoted", 60, 0.05)


def accept_clock_if_held(process: EventProcessChild) -> None:
    """Accept the server's clock, as an operator does: a leader that was elected after a step back does not trust it."""
    log = process.log
    if log.count("promotion is held") > log.count("promotion resumes"):
        process.send_signal(signal.SIGUSR1)


def stored_messages(server: ValkeyServer, tickwheel: Tickwheel) -> int:
    """Return the number of messages of the namespace on one server."""
    namespace = tickwheel._context.namespace
    return sum(server.call("HLEN", shard_key(namespace, shard, "messages")) for shard in range(SHARDS))
