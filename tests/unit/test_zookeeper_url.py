"""The URL of an election: its form, and the errors for invalid URLs."""

from datetime import timedelta

import pytest

from tickwheel import InvalidArgument
from tickwheel.election.zookeeper_url import ZooKeeperUrl

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("url", "hosts", "path"),
    [
        ("zk://zk1", ("zk1:2181",), "/tickwheel"),
        (
            "zk://zk1:2182,zk2.example.org,10.0.0.3:1/a/b-c",
            ("zk1:2182", "zk2.example.org:2181", "10.0.0.3:1"),
            "/a/b-c",
        ),
        ("zk://[::1],[fe80::1]:99/", ("[::1]:2181", "[fe80::1]:99"), "/tickwheel"),
        ("zk://h/path/", ("h:2181",), "/path"),
    ],
)
def test_hosts_and_path_are_read_from_the_url(url: str, hosts: tuple[str, ...], path: str) -> None:
    assert ZooKeeperUrl.parse(url) == ZooKeeperUrl(hosts, path, 4.0)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis://h", "an election is lease, or has the form zk://"),
        ("h:2181", "an election is lease, or has the form zk://"),
        ("zk://", "'' in 'zk://' is not the address of a ZooKeeper server"),
        ("zk://a,,b", "'' in 'zk://a,,b' is not the address of a ZooKeeper server"),
        ("zk://a:0", "'a:0'"),
        ("zk://a:65536", "'a:65536'"),
        ("zk://a:b", "'a:b'"),
        ("zk://user:secret@a", "has no user, password or options"),
        ("zk://a/b//c", "path '/b//c'"),
        ("zk://a/../b", "path '/../b'"),
        ("zk://a/zookeeper/x", "path '/zookeeper/x'"),
        ("zk://a/b?c=d", "has no user, password or options"),
    ],
)
def test_an_invalid_part_of_the_url_is_named(url: str, reason: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        ZooKeeperUrl.parse(url)
    assert reason in str(refusal.value)


@pytest.mark.parametrize("session_timeout", [timedelta(milliseconds=999), timedelta(seconds=61)])
def test_a_session_timeout_lasts_from_a_second_to_a_minute(session_timeout: timedelta) -> None:
    with pytest.raises(InvalidArgument, match="from 1 to 60 s"):
        ZooKeeperUrl.parse("zk://h", session_timeout)
    assert ZooKeeperUrl.parse("zk://h", timedelta(seconds=60)).session_timeout_s == 60
