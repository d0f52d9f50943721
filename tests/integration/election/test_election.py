"""The election on ZooKeeper: shards are balanced, handed over without a pause, and no node is left behind."""

import logging
import threading
from contextlib import ExitStack
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from tests.support.election_member import Member, candidates, delete_nodes, expire, settle
from tests.support.wait_until import eventually
from tickwheel.election import zookeeper as zookeeper_election
from tickwheel.election.zookeeper_session import ZooKeeperSession
from tickwheel.election.zookeeper_url import ZooKeeperUrl

pytestmark = pytest.mark.integration

NAMESPACE = "tw"


def test_after_each_join_and_leave_loads_differ_by_one_and_a_join_moves_only_its_share(
    url: ZooKeeperUrl, watcher: KazooClient
) -> None:
    shards, members = 64, list[Member]()
    with ExitStack() as ending:
        for _ in range(4):
            before = [member.epochs() for member in members]
            members.append(ending.enter_context(Member(url, NAMESPACE, shards)))
            settle(members, shards)
            for then, member in zip(before, members, strict=False):
                # The epochs are unchanged: no remaining leadership was won again.
                assert member.epochs().items() <= then.items()
        while len(members) > 1:
            leaver = members.pop(0)
            epochs_before = [member.epochs() for member in members]
            leaver.leave()
            settle(members, shards)
            for then, member in zip(epochs_before, members, strict=True):
                assert then.items() <= member.epochs().items()
        standing = candidates(watcher, f"{url.path}/{NAMESPACE}", shards)
        assert {shard: len(leaderships) for shard, leaderships in standing.items()} == dict.fromkeys(range(shards), 1)
    assert candidates(watcher, f"{url.path}/{NAMESPACE}", shards) == {shard: [] for shard in range(shards)}
    assert watcher.get_children(f"{url.path}/{NAMESPACE}/members") == []


def test_each_hand_over_of_a_shard_is_logged_once(url: ZooKeeperUrl, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tickwheel.event_process")
    shards = 4
    with Member(url, NAMESPACE, shards) as one:
        settle([one], shards)
        assert "handed over" not in caplog.text
        with Member(url, NAMESPACE, shards) as another:
            settle([one, another], shards)
            records = [record for record in caplog.records if "handed over" in record.message]
            assert sorted(record.message for record in records) == [
                f"shard {shard}: handed over to another process" for shard in sorted(another.leads)
            ]
            assert {record.levelname for record in records} == {"INFO"}


def test_the_epochs_of_a_shard_only_grow_and_it_never_has_two_leaders(url: ZooKeeperUrl) -> None:
    shards = 8
    with Member(url, NAMESPACE, shards) as staying:
        for _ in range(5):
            with Member(url, NAMESPACE, shards) as visitor:
                settle([staying, visitor], shards)
            settle([staying], shards)
            assert visitor.wins
            for won, shard, epoch in visitor.wins:
                earlier = {tuple(term) for _, *term in staying.wins if term[0] == shard and term[1] < epoch}
                assert earlier <= {tuple(term) for moment, *term in staying.ends if moment < won}
    for shard in range(shards):
        epochs = [epoch for _, of, epoch in staying.wins if of == shard]
        assert epochs == sorted(set(epochs))


def test_a_session_ended_by_the_servers_ends_the_leaderships_and_the_member_returns(
    url: ZooKeeperUrl, watcher: KazooClient
) -> None:
    shards = 8
    with Member(url, NAMESPACE, shards) as one, Member(url, NAMESPACE, shards) as another:
        settle([one, another], shards)
        for _ in range(3):
            before = set(one.epochs().items())
            expire(one.zookeeper)
            eventually(lambda was=before: {(shard, epoch) for _, shard, epoch in one.ends} >= was, "each has ended")  # type: ignore[misc]
            settle([one, another], shards)
            one.ends.clear()
        standing = candidates(watcher, f"{url.path}/{NAMESPACE}", shards)
        assert [len(leaderships) for leaderships in standing.values()] == [1] * shards
        assert len(watcher.get_children(f"{url.path}/{NAMESPACE}/members")) == 2


@pytest.mark.timeout(300)
def test_a_member_paused_between_being_the_lowest_and_raising_the_epoch_raises_nothing(
    url: ZooKeeperUrl, monkeypatch: pytest.MonkeyPatch, watcher: KazooClient
) -> None:
    raise_epoch = ZooKeeperSession.raise_epoch
    paused_members = dict[ZooKeeperSession, Member]()

    def paused(ensemble: ZooKeeperSession, node: str, candidate: str, owner: bytes) -> Any:
        member = paused_members.pop(ensemble, None)
        if member is not None:
            # During the pause the session of the member ends, and the rival wins.
            wins = len(rival.wins)
            expire(member.zookeeper)
            eventually(lambda: len(rival.wins) > wins, "the rival wins")
            epochs.append(rival.wins[-1][2])
            # The member continues with a new session.
            eventually(lambda: member.zookeeper.connected, "the member is connected again")
            request = raise_epoch(ensemble, node, candidate, owner)
            assert isinstance(request.get(timeout=10)[0], Exception)
            assert watcher.exists(node).version == epochs[-1]
            resumed.set()
            return request
        return raise_epoch(ensemble, node, candidate, owner)

    monkeypatch.setattr(ZooKeeperSession, "raise_epoch", paused)
    epochs = list[int]()
    with Member(url, NAMESPACE, 1) as rival:
        settle([rival], 1)
        for _ in range(20):
            with Member(url, NAMESPACE, 1) as member:
                resumed = threading.Event()
                paused_members[member.election._session] = member
                # The rival loses its session, so the member is the lowest; then the rival is the lowest again.
                expire(rival.zookeeper)
                assert resumed.wait(30)
            eventually(lambda: 0 in rival.leads, "the rival leads")
    assert len(epochs) == 20


def test_a_member_that_lost_its_session_after_raising_the_epoch_does_not_lead_under_it(
    url: ZooKeeperUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    raise_epoch = ZooKeeperSession.raise_epoch
    raised = list[int]()
    members = list[Member]()

    def answered_late(ensemble: ZooKeeperSession, node: str, candidate: str, owner: bytes) -> Any:
        request = raise_epoch(ensemble, node, candidate, owner)
        if not raised:
            raised.append(request.get(timeout=10)[1].version)
            eventually(lambda: members, "the member is known")
            expire(members[0].zookeeper)
            eventually(lambda: members[0].election._losses, "the member notices the loss of its session")
        return request

    monkeypatch.setattr(ZooKeeperSession, "raise_epoch", answered_late)
    with Member(url, NAMESPACE, 1) as member:
        members.append(member)
        settle(members, 1)
        assert [epoch for _, _, epoch in member.wins] == [raised[0] + 1]


def test_a_leaving_member_leads_until_the_others_stand_for_its_shards(url: ZooKeeperUrl) -> None:
    shards = 4
    with Member(url, NAMESPACE, shards) as leaving, Member(url, NAMESPACE, shards) as staying:
        settle([leaving, staying], shards)
        led = list(leaving.leads.values())
        leaving.election.leave()
        assert [leadership.lost for leadership in led] == [True] * (shards // 2)
        settle([staying], shards)


def test_a_shard_that_a_member_cannot_reach_moves_to_a_member_that_can_and_returns(url: ZooKeeperUrl) -> None:
    shards = 4
    with Member(url, NAMESPACE, shards) as one:
        settle([one], shards)
        # No other member could lead.
        assert not one.election.resign(0)
        with Member(url, NAMESPACE, shards) as another:
            settle([one, another], shards)
            shard = min(one.leads)
            leadership = one.leads[shard]
            assert one.election.resign(shard)
            # The member requests the shard again when it can reach the shard, here immediately.
            leadership.lose()
            settle([one, another], shards)


def test_leaders_continue_without_the_nodes_of_the_election_and_the_log_names_the_remedy(
    url: ZooKeeperUrl, watcher: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    with Member(url, NAMESPACE, 4) as member:
        settle([member], 4)
        before = member.epochs()
        delete_nodes(watcher, url.path)
        eventually(lambda: "tickwheel shards reset-epoch" in caplog.text, "the log names the remedy")
        assert member.epochs() == before
        assert watcher.exists(url.path) is None


def test_a_member_does_not_adopt_nodes_that_another_process_created_since_it_entered(
    url: ZooKeeperUrl, watcher: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    with Member(url, NAMESPACE, 4) as member:
        settle([member], 4)
        before = member.epochs()
        delete_nodes(watcher, url.path)
        with Member(url, NAMESPACE, 4) as stranger:
            settle([stranger], 4)
            eventually(lambda: "tickwheel shards reset-epoch" in caplog.text, "the log names the remedy")
            expire(member.zookeeper)
            eventually(lambda: member.election._losses, "the member notices the loss of its session")
            settle([stranger], 4)
            assert member.epochs() == before


@pytest.mark.parametrize("refused", ["", "/members", "/shards/2"])
def test_a_node_that_zookeeper_refuses_is_named_and_the_election_continues_once_allowed(
    url: ZooKeeperUrl, watcher: KazooClient, caplog: pytest.LogCaptureFixture, refused: str
) -> None:
    node = f"{url.path}/{NAMESPACE}{refused}"
    watcher.add_auth("digest", "another:secret")
    watcher.ensure_path(node)
    watcher.set_acls(node, [make_digest_acl("another", "secret", all=True)])
    with Member(url, NAMESPACE, 4) as member:
        eventually(lambda: "NoAuthError" in caplog.text, "the refusal is logged")
        assert f"ZooKeeper denies this process access to the node {node}" in caplog.text
        assert "reset-epoch" not in caplog.text
        watcher.set_acls(node, OPEN_ACL_UNSAFE)
        settle([member], 4)


def test_a_change_without_an_event_is_noticed_at_the_next_check(
    url: ZooKeeperUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_election, "RECHECK_INTERVAL_S", 0.1)
    monkeypatch.setattr(zookeeper_election.ZooKeeperElection, "_on_event", lambda self, event: None)
    shards = 4
    with Member(url, NAMESPACE, shards) as one:
        settle([one], shards)
        with Member(url, NAMESPACE, shards) as another:
            settle([one, another], shards)
        settle([one], shards)


def test_a_host_name_without_an_address_is_reported(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_election, "RECHECK_INTERVAL_S", 0.1)
    with Member(ZooKeeperUrl.parse("zk://nowhere.invalid"), NAMESPACE, 1):
        eventually(lambda: "nowhere.invalid has no address: " in caplog.text, "the error is logged")
