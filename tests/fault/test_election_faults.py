"""Elected event processes are killed, frozen or cut off: others replace them, and deposed leaders change nothing."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from services.process import HOST
from services.zookeeper import ZooKeeper
from tests.conftest import Contents
from tests.fault.event_processes import EventProcessChild
from tests.fault.flaky_proxy import FlakyProxy
from tests.fault.shard_owners import Owners, enqueue, wait_until_pending
from tests.support.election_member import candidates
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.election.zookeeper_url import ZooKeeperUrl
from tickwheel.operations.shard_status import reset_epoch, shard_statuses
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.fault

SHARDS = 4
Start = Callable[..., EventProcessChild]


@pytest.fixture
def tickwheel(tickwheel_server: PrivateServer, namespace: str) -> Iterator[Tickwheel]:
    with Tickwheel(tickwheel_server.url, namespace=namespace, shards=SHARDS, history="relay") as client:
        yield client


@pytest.fixture
def ensemble(zookeeper: ZooKeeper) -> ZooKeeper:
    return zookeeper


@pytest.fixture
def start(
    tickwheel: Tickwheel, tickwheel_server: PrivateServer, ensemble: ZooKeeper, tmp_path: Path
) -> Iterator[Start]:
    """Start event processes, and kill them at the end of the test."""
    with ExitStack() as stack:

        def start_process(at: str = tickwheel_server.url, hosts: str = ensemble.hosts) -> EventProcessChild:
            lock = tmp_path / f"process {len(list(tmp_path.iterdir()))}"
            url = ZooKeeperUrl.parse(f"zk://{hosts}")
            child = EventProcessChild(at, tickwheel._context.namespace, lock, election=url)
            return stack.enter_context(child)

        yield start_process


@pytest.fixture
def owners(tickwheel: Tickwheel, server: Any) -> Owners:
    return Owners(tickwheel, server)


def unchanged(read: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """Return the contents if two reads give the same, else None."""
    first = read()
    return first if read() == first else None


def test_a_leader_that_is_stopped_hands_its_shards_over(
    tickwheel: Tickwheel, start: Start, owners: Owners, ensemble: ZooKeeper
) -> None:
    one, another = start(), start()
    owners.settle(one, another)
    enqueue(tickwheel, 400, timedelta(seconds=1))
    # The process waits until other candidates exist, not for a fixed time: under a second, or longer on a busy machine.
    assert one.stop(within=3.0) == 0
    # The process closed its session, so the successor did not wait for the session to expire.
    client = KazooClient(ensemble.hosts)
    client.start()
    root = f"/tickwheel/{tickwheel._context.namespace}"
    assert len(client.get_children(f"{root}/members")) == 1
    owners.settle(another)
    eventually(
        lambda: [len(nodes) for nodes in candidates(client, root, SHARDS).values()] == [1] * SHARDS,
        "each shard has one candidate",
    )
    client.stop()
    client.close()
    wait_until_pending(tickwheel, 400)
    assert another.stop() == 0


def test_a_leader_frozen_past_its_session_changes_nothing_when_it_wakes(
    tickwheel: Tickwheel, start: Start, owners: Owners, ensemble: ZooKeeper, contents: Contents
) -> None:
    namespace = tickwheel._context.namespace
    [zookeeper] = ensemble.servers
    with FlakyProxy((HOST, zookeeper.port), keeps_requests=False) as proxy:
        frozen = start(hosts=f"{HOST}:{proxy.port}")
        owners.settle(frozen)
        enqueue(tickwheel, 1_000, timedelta(seconds=3))
        frozen.pause()
        successor = start()
        owners.settle(successor)
        # No leader runs, and the frozen process cannot be elected again. It wakes with timers in memory.
        proxy.stall()
        successor.pause()
        epochs = owners.epochs()
        # Calls that the successor has sent may still arrive.
        before = eventually(lambda: unchanged(lambda: contents(namespace)), "the server has executed all calls")
        frozen.resume()
        eventually(
            lambda: frozen.log.count("becoming a candidate again") == SHARDS,
            "the deposed process is fenced on every shard",
        )
        assert contents(namespace) == before
        proxy.go_on()
        successor.resume()
        wait_until_pending(tickwheel, 1_000)
        owners.settle(frozen, successor, within=60)
    assert all(now >= then for now, then in zip(owners.epochs(), epochs, strict=True))


def test_a_leader_that_cannot_reach_zookeeper_drives_until_it_is_replaced_and_is_a_candidate_again_later(
    tickwheel: Tickwheel, start: Start, owners: Owners, ensemble: ZooKeeper
) -> None:
    [zookeeper] = ensemble.servers
    with FlakyProxy((HOST, zookeeper.port), keeps_requests=False) as proxy:
        cut_off = start(hosts=f"{HOST}:{proxy.port}")
        owners.settle(cut_off)
        epochs = owners.epochs()
        proxy.stall()
        enqueue(tickwheel, 400, timedelta(seconds=1))
        wait_until_pending(tickwheel, 400)
        # There is no other process, so the leader continued. Its session expires in the meantime.
        assert owners.epochs() == epochs
        another = start()
        owners.settle(another)
        # The old leader notices its successor as soon as it has a call to make.
        enqueue(tickwheel, 400, timedelta(seconds=1))
        wait_until_pending(tickwheel, 800)
        eventually(
            lambda: cut_off.log.count("becoming a candidate again") == SHARDS,
            "the deposed process is fenced on every shard",
        )
        proxy.go_on()
        owners.settle(cut_off, another, within=60)
        proxy.stall()
        assert cut_off.stop() == 0
        owners.settle(another)


def test_an_event_process_of_another_server_with_the_same_namespace_and_path_exits_before_it_claims(
    tickwheel: Tickwheel, start: Start, owners: Owners
) -> None:
    one = start()
    owners.settle(one)
    before = owners.epochs()
    namespace = tickwheel._context.namespace
    with PrivateServer() as server, Tickwheel(server.url, namespace=namespace, shards=2) as elsewhere:
        stranger = start(server.url)
        assert stranger.wait(20) == 1
        assert "its own path" in stranger.log
        assert [view.owner for view in elsewhere._run(shard_statuses(elsewhere._context))] == ["", ""]
    owners.settle(one)
    assert owners.epochs() == before


class TestQuorum:
    @pytest.fixture
    def ensemble(self, zookeeper_quorum: ZooKeeper) -> ZooKeeper:
        return zookeeper_quorum

    @pytest.mark.timeout(300)
    def test_without_a_quorum_the_leader_continues_and_no_other_process_wins(
        self, tickwheel: Tickwheel, start: Start, owners: Owners, ensemble: ZooKeeper
    ) -> None:
        one, another = start(), start()
        owners.settle(one, another)
        before = owners.now(), owners.epochs()
        lost = ensemble.servers[:2]
        for server in lost:
            server.kill()
        # The loop takes longer than the session timeout.
        for count in range(1, 7):
            enqueue(tickwheel, 100, timedelta(seconds=1))
            wait_until_pending(tickwheel, count * 100)
            assert (owners.now(), owners.epochs()) == before
        for server in lost:
            server.restart()
        ensemble.wait_until_all_ready()
        one.kill()
        owners.settle(another, within=60)


class TestZooKeeperDataLoss:
    @pytest.fixture
    def ensemble(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
        with ZooKeeper(tmp_path_factory.mktemp("losing")) as started:
            yield started

    @pytest.mark.timeout(300)
    def test_leaders_continue_without_the_election_nodes_and_after_reset_epoch_a_new_election_begins(
        self, tickwheel: Tickwheel, start: Start, owners: Owners, ensemble: ZooKeeper
    ) -> None:
        one, another = start(), start()
        owners.settle(one, another)
        before = owners.now(), owners.epochs()
        [server] = ensemble.servers
        server.kill()
        shutil.rmtree(server.folder / "data" / "version-2")
        server.start()
        for child in (one, another):
            eventually(lambda log=child: "tickwheel shards reset-epoch" in log.log, "the log names the fix", 60)  # type: ignore[misc]
        enqueue(tickwheel, 400, timedelta(seconds=1))
        wait_until_pending(tickwheel, 400)
        assert (owners.now(), owners.epochs()) == before
        for child in (one, another):
            assert child.stop() == 0
        core = tickwheel._context
        for shard in range(SHARDS):
            tickwheel._run(reset_epoch(core, shard))
        third, fourth = start(), start()
        owners.settle(third, fourth)
        third.kill()
        owners.settle(fourth)
