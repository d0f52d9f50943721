"""When a process leaves a shard that it cannot reach to others."""

from typing import Any

import pytest

from tickwheel.election.lease_row import EVENT_PROCESS, Row
from tickwheel.election.zookeeper import ZooKeeperElection
from tickwheel.election.zookeeper_url import ZooKeeperUrl
from tickwheel.event_process import lease_election
from tickwheel.event_process.lease_election import LeaseElection

pytestmark = pytest.mark.unit

SHARDS = 2
LEASE_MS = 4_000.0


def refuse(shard: int) -> Any:
    raise ConnectionError


def row(*avoids: int) -> Row:
    return Row(EVENT_PROCESS, 1, frozenset(), frozenset(), frozenset(avoids), "other")


def make_election(monkeypatch: pytest.MonkeyPatch, *, is_cluster: bool, attended_ms_ago: float) -> LeaseElection:
    monkeypatch.setattr(lease_election, "monotonic_ms", lambda: 100_000.0)
    election = LeaseElection(refuse, "tw", SHARDS, rank=EVENT_PROCESS, lease_ms=LEASE_MS, is_cluster=is_cluster)
    election._attended_at = 100_000.0 - attended_ms_ago
    election._state._rows = {election.member: row(), "other": row(1)}
    return election


def test_a_shard_of_a_cluster_that_only_this_process_cannot_reach_is_left_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    election = make_election(monkeypatch, is_cluster=True, attended_ms_ago=900)
    assert election.resign(0)
    assert election._shards.resigned() == {0}
    # Nobody else can reach this shard.
    assert not election.resign(1)
    # The loop waits for the shard again, because it can reach the shard.
    election._shards.wait_for(0, lambda: None)
    assert election._shards.resigned() == set()


@pytest.mark.parametrize(("is_cluster", "attended_ms_ago"), [(False, 900), (True, 2_100)])
def test_a_shard_whose_server_is_that_of_the_metadata_is_kept(
    monkeypatch: pytest.MonkeyPatch, is_cluster: bool, attended_ms_ago: float
) -> None:
    election = make_election(monkeypatch, is_cluster=is_cluster, attended_ms_ago=attended_ms_ago)
    assert not election.resign(0)
    assert election._shards.resigned() == set()


def test_without_zookeeper_no_shard_is_left_to_others() -> None:
    """Nobody else could be elected, so a short outage of Redis would leave the shard without a leader."""
    election = ZooKeeperElection(ZooKeeperUrl.parse("zk://127.0.0.1:1"), "tw", SHARDS, b"id")
    election._members = {"other": frozenset()}
    assert not election.resign(0)
    election._connected = True
    assert election.resign(0)
