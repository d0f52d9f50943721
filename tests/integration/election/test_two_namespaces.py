"""Namespaces of the same name do not share an election on ZooKeeper; a recreated one takes over its election."""

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError

from tests.support.election_member import Member, expire, open_session, settle
from tests.support.wait_until import eventually
from tickwheel.election.znodes import ElectionNodes
from tickwheel.election.zookeeper_url import ZooKeeperUrl
from tickwheel.errors import TickwheelError

pytestmark = pytest.mark.integration

NAMESPACE = "tw"


def test_a_namespace_does_not_enter_the_election_of_another_namespace_of_its_name(
    url: ZooKeeperUrl, watcher: KazooClient
) -> None:
    with Member(url, NAMESPACE, 4) as member:
        settle([member], 4)
        before, assigned = member.epochs(), watcher.get(f"{url.path}/{NAMESPACE}/assignment")
        with Member(url, NAMESPACE, 2, b"another") as stranger:
            eventually(lambda: len(stranger.errors) == 2, "the member is refused for each shard")
            assert "its own path" in str(stranger.errors[0])
            assert not stranger.wins
        assert member.epochs() == before
        assert watcher.get(f"{url.path}/{NAMESPACE}/assignment") == assigned


def test_a_recreated_namespace_takes_over_the_election_once_no_earlier_member_is_left(url: ZooKeeperUrl) -> None:
    with Member(url, NAMESPACE, 4) as before:
        settle([before], 4)
        epochs = before.epochs()
    with Member(url, NAMESPACE, 4, b"anew") as member:
        settle([member], 4)
        assert all(epoch > epochs[shard] for shard, epoch in member.epochs().items())


def test_a_member_that_finds_the_election_taken_by_another_namespace_after_a_lost_session_stops(
    url: ZooKeeperUrl, watcher: KazooClient
) -> None:
    root = f"{url.path}/{NAMESPACE}"
    with Member(url, NAMESPACE, 4) as member:
        settle([member], 4)
        watcher.set(root, b"another")
        watcher.create(f"{root}/members/stranger", ephemeral=True)
        expire(member.zookeeper)
        eventually(lambda: len(member.errors) == 4, "the member stops on each shard")
        assert not member.leads


def test_an_election_without_an_id_from_an_earlier_version_gets_the_id_of_its_first_member(
    url: ZooKeeperUrl, watcher: KazooClient
) -> None:
    root = f"{url.path}/{NAMESPACE}"
    watcher.ensure_path(f"{root}/members")
    watcher.create(f"{root}/members/old", b'{"name": "host:1", "avoids": [0, 1, 2, 3]}', ephemeral=True)
    with Member(url, NAMESPACE, 4) as member:
        settle([member], 4)
        assert watcher.get(root)[0] == b"one"


def test_a_member_that_read_the_election_before_another_namespace_took_it_does_not_join(url: ZooKeeperUrl) -> None:
    with open_session(url) as one, open_session(url) as another:
        path = f"{url.path}/{NAMESPACE}"
        first, second = ElectionNodes(one, path, 4, b"one"), ElectionNodes(another, path, 4, b"another")
        first.ensure_created()
        second.ensure_created()
        with pytest.raises(BadVersionError):
            first.register_member(f"{first.members}/first", b"")
        first.ensure_created()
        first.register_member(f"{first.members}/first", b"")
        with pytest.raises(BadVersionError):
            second.register_member(f"{second.members}/second", b"")
        with pytest.raises(TickwheelError, match="its own path"):
            second.ensure_created()
