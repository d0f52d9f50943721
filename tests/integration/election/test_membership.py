"""The nodes of an election and its list of members, as one member reads and writes them on a real ZooKeeper."""

import json
import threading
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.support.election_member import Member, delete_nodes, open_session, settle
from tests.support.wait_until import eventually
from tickwheel.election import membership
from tickwheel.election.assignment import Assignment, assign, pack
from tickwheel.election.znodes import ElectionNodes
from tickwheel.election.zookeeper_session import ZooKeeperSession
from tickwheel.election.zookeeper_url import ZooKeeperUrl
from tickwheel.event_process.metrics import ShardMetrics

pytestmark = pytest.mark.integration

NAMESPACE = "tw"
SHARDS = 4


def root(ensemble: ZooKeeperSession, url: ZooKeeperUrl) -> ElectionNodes:
    return ElectionNodes(ensemble, f"{url.path}/{NAMESPACE}", SHARDS, b"one")


def entered(ensemble: ZooKeeperSession, url: ZooKeeperUrl, member: str) -> membership.Membership:
    """Return the list of a member that has entered the election and is not yet on the list."""
    nodes = root(ensemble, url)
    nodes.ensure_created()
    return membership.Membership(ensemble, nodes, member, "host:1", SHARDS, lambda _: None)


def test_an_assignment_is_written_only_over_the_assignment_that_was_read(
    url: ZooKeeperUrl, monkeypatch: pytest.MonkeyPatch, watcher: KazooClient
) -> None:
    root, by_another = f"{url.path}/{NAMESPACE}", pack(["another"] * 4)

    def assign_late(*args: Any) -> Assignment:
        watcher.set(f"{root}/assignment", by_another)
        return assign(*args)

    monkeypatch.setattr(membership, "assign", assign_late)
    with open_session(url) as ensemble:
        one = entered(ensemble, url, "one")
        assert one.refresh(frozenset(), leaving=False).assignment == [None] * 4
        assert watcher.get(f"{root}/assignment")[0] == by_another


DESCRIPTIONS = {
    "empty": b"",
    "not UTF-8": b"\xff",
    "a list": b"[]",
    "a number": b"7",
    "without shards": b"{}",
    "a number for shards": b'{"avoids": 7}',
    "nested shards": b'{"avoids": [[0]]}',
    "shards as strings": b'{"avoids": ["0", "1"]}',
    "fractional shards": b'{"avoids": [0.5]}',
    "infinite shards": b'{"avoids": [NaN, Infinity, 1e999]}',
    "too many digits": b'{"avoids": [' + b"1" * 5_000 + b"]}",
    "deep": b"[" * 100_000,
    "deep shards": b'{"avoids": ' + b"[" * 100_000,
    "large": b"x" * 1_000_000,
}


@pytest.mark.parametrize("described", DESCRIPTIONS.values(), ids=DESCRIPTIONS)
def test_a_member_with_an_unreadable_description_avoids_nothing(
    url: ZooKeeperUrl, watcher: KazooClient, described: bytes
) -> None:
    with open_session(url) as ensemble:
        one = entered(ensemble, url, "one")
        watcher.create(f"{url.path}/{NAMESPACE}/members/other", described, ephemeral=True)
        called = one.refresh(frozenset(), leaving=False)
    assert called.members == {"one": frozenset(), "other": frozenset()}
    assert sorted(filter(None, called.assignment)) == ["one", "one", "other", "other"]


def test_a_member_publishes_the_shards_that_it_avoids_after_each_change(
    url: ZooKeeperUrl, watcher: KazooClient
) -> None:
    node = f"{url.path}/{NAMESPACE}/members/one"
    with open_session(url) as ensemble, open_session(url) as of_another:
        one, another = entered(ensemble, url, "one"), entered(of_another, url, "another")
        another.refresh(frozenset(), leaving=False)
        for avoided in ({0, 1}, {2}, set[int]()):
            assert one.refresh(avoided, leaving=False).members["one"] == avoided
            assert json.loads(watcher.get(node)[0])["avoids"] == sorted(avoided)
            view = another.refresh(frozenset(), leaving=False)
            assert view.members["one"] == avoided
            assert not [shard for shard in avoided if view.assignment[shard] == "one"]


def test_a_member_whose_nodes_are_gone_does_not_create_them_again(url: ZooKeeperUrl, watcher: KazooClient) -> None:
    with open_session(url) as ensemble:
        nodes = root(ensemble, url)
        nodes.ensure_created()
        delete_nodes(watcher, nodes.path)
        with pytest.raises(NoNodeError):
            nodes.ensure_created()
        assert watcher.exists(nodes.path) is None


def test_a_member_does_not_enter_by_nodes_that_were_created_since_it_entered(
    url: ZooKeeperUrl, watcher: KazooClient
) -> None:
    with open_session(url) as ensemble, open_session(url) as of_another:
        nodes = root(ensemble, url)
        nodes.ensure_created()
        nodes.ensure_created()
        delete_nodes(watcher, nodes.path)
        root(of_another, url).ensure_created()
        with pytest.raises(NoNodeError):
            nodes.ensure_created()


@pytest.mark.parametrize(
    "stored",
    [b"[" * 100_000, b"\xff", b'{"members": ["one"], "shards": [NaN]}'],
    ids=["deep", "not UTF-8", "not a number"],
)
def test_an_election_continues_with_nodes_that_nobody_can_read(
    url: ZooKeeperUrl, watcher: KazooClient, stored: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with Member(url, NAMESPACE, SHARDS) as one:
        settle([one], SHARDS)
        watcher.set(f"{url.path}/{NAMESPACE}/assignment", stored)
        watcher.create(f"{url.path}/{NAMESPACE}/members/other", stored)
        eventually(lambda: "assignment is ignored" in caplog.text, "the data is logged")
        metrics = ShardMetrics(NAMESPACE, dict, lambda: one.election.unreadable_nodes)

        def total() -> float:
            samples = {sample.name: sample.value for metric in metrics.collect() for sample in metric.samples}
            return samples["tickwheel_unreadable_nodes_total"]

        eventually(lambda: total() >= 2, "both nodes are counted")
        watcher.delete(f"{url.path}/{NAMESPACE}/members/other")
        with Member(url, NAMESPACE, SHARDS) as another:
            settle([one, another], SHARDS)


def test_an_election_continues_after_a_bug_and_logs_the_traceback(
    url: ZooKeeperUrl, watcher: KazooClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised = threading.Event()

    def assign_once(*args: Any) -> Assignment:
        if not raised.is_set():
            raised.set()
            raise ZeroDivisionError("a bug")
        return assign(*args)

    with Member(url, NAMESPACE, SHARDS) as one:
        settle([one], SHARDS)
        monkeypatch.setattr(membership, "assign", assign_once)
        with Member(url, NAMESPACE, SHARDS) as another:
            settle([one, another], SHARDS)
        assert raised.is_set()
    assert "a bug" in caplog.text
    assert "Traceback" in caplog.text


def test_nodes_that_no_session_owns_are_no_members_and_no_candidates(
    url: ZooKeeperUrl, watcher: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    path = f"{url.path}/{NAMESPACE}"
    member, candidate = f"{path}/members/{'a' * 32}", f"{path}/shards/0/x-0000000000"
    for node in (member, candidate):
        watcher.create(node, b'{"name": "x", "avoids": []}', makepath=True)
    with Member(url, NAMESPACE, SHARDS) as one, Member(url, NAMESPACE, SHARDS) as another:
        settle([one, another], SHARDS)
        assert one.election.unreadable_nodes + another.election.unreadable_nodes >= 3
    for node in (member, candidate):
        assert f"node {node} is ignored, because no event process has created it" in caplog.text
    assert watcher.exists(member)
