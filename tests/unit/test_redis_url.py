"""Redis URLs: their form in logs and errors, and the servers that the URL of a cluster names."""

import pytest

from tickwheel.errors import InvalidArgument
from tickwheel.redis.url import first_node_only, node_url, redact, servers, validate_redis_url

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("url", "redacted"),
    [
        ("redis://localhost:6379/1", "redis://localhost:6379/1"),
        ("redis://user:secret@localhost", "redis://user:***@localhost"),
        ("rediss://:secret@[::1]:6380?ssl_cert_reqs=none", "rediss://:***@[::1]:6380?ssl_cert_reqs=none"),
        ("unix://user@/a/b.sock?password=secret&db=1", "unix://user@/a/b.sock?password=***&db=1"),
        ("unix:///a/b.sock?db=1&password=se%26cret", "unix:///a/b.sock?db=1&password=***"),
        ("redis://u:secret@h?password=secret", "redis://u:***@h?password=***"),
        ("rediss://h?ssl_password=secret&ssl_ca_certs=a", "rediss://h?ssl_password=***&ssl_ca_certs=a"),
        ("redis://h?%70assword=secret", "redis://h?%70assword=***"),
        ("redis://h?username=a&PassWord=b%26c", "redis://h?username=a&PassWord=***"),
        ("redis+cluster://u:secret@a:1,b:2?ssl_password=s", "redis+cluster://u:***@a:1,b:2?ssl_password=***"),
    ],
)
def test_a_password_is_not_shown(url: str, redacted: str) -> None:
    assert redact(url) == redacted


@pytest.mark.parametrize(
    ("redacted", "short"),
    [
        ("redis+cluster://u:***@a:1,b:2,c:3/0?ssl_ca_certs=a,b", "redis+cluster://u:***@a:1,…/0?ssl_ca_certs=a,b"),
        ("rediss+cluster://[::1]:1,[::2]:1", "rediss+cluster://[::1]:1,…"),
        ("redis+cluster://a:1", "redis+cluster://a:1"),
        ("redis://a:1", "redis://a:1"),
        ("the embedded server in /a,b", "the embedded server in /a,b"),
    ],
)
def test_a_log_names_one_server_of_a_cluster(redacted: str, short: str) -> None:
    assert first_node_only(redacted) == short


def test_a_clusters_url_names_its_servers() -> None:
    url = "rediss+cluster://user:p%40ss@a:7001,b,[::1]:7003,[::2]?ssl_cert_reqs=none"
    validate_redis_url(url)
    assert servers(url) == ["a:7001", "b:6379", "[::1]:7003", "[::2]:6379"]
    assert node_url(url, "c:7004") == "rediss://user:p%40ss@c:7004?ssl_cert_reqs=none"


@pytest.mark.parametrize("url", ["redis+cluster://", "redis+cluster://:7001", "rediss+cluster://a:7001,,b:7002"])
def test_a_cluster_url_without_a_host_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument, match="lacks a host"):
        validate_redis_url(url)


@pytest.mark.parametrize("url", ["redis://h:notaport", "redis://h:99999", "redis+cluster://a:7001,b:x"])
def test_an_invalid_port_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument, match="each port in url must be a number up to 65535"):
        validate_redis_url(url)


@pytest.mark.parametrize("url", ["redis://user:p/w@h", "redis+cluster://user:p@ss/w@a:7001", "redis://user:p@h:x"])
def test_an_unescaped_password_is_not_read_as_a_port(url: str) -> None:
    with pytest.raises(InvalidArgument, match="'%40' for '@'"):
        validate_redis_url(url)


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("unix://relative/a.sock", "path: the url of a socket"),
        ("unix://u:p/w@/a.sock", "port"),
        ("redis://h/abc", "database: the path after the host must be a number"),
        ("redis://h/0/1", "database"),
        ("redis://h?dbb=1", "option: allowed are client_name, db, password, username, each"),
        ("redis://h?db", "option"),
        ("redis://h?db=x", "option"),
        ("redis://pass#word@h", "option"),
        ("redis://h?ssl_cert_reqs=none", "option"),
        ("rediss://h?ssl_cert_reqs=maybe", "option: allowed are .*ssl_cert_reqs"),
        ("redis://" + "h" * 300, "host"),
        ("redis+cluster://a:7001/x", "database"),
    ],
)
def test_the_error_about_an_invalid_url_names_the_part_that_is_invalid(url: str, part: str) -> None:
    with pytest.raises(InvalidArgument, match=f"url has an invalid {part}.*'%40' for '@'"):
        validate_redis_url(url)


def test_the_url_of_a_single_server_is_not_changed() -> None:
    for url in ("redis://h:1/2", "unix:///a/b.sock?db=1"):
        assert [node_url(url, server) for server in servers(url)] == [url]


@pytest.mark.parametrize(
    "url",
    [
        "redis+cluster://",
        "redis+cluster://a:7001,,b:7002",
        "redis+cluster://a:7001,:7002",
        "redis+cluster://a:99999",
        "redis+cluster://a:x",
        "redis+cluster://[::1",
        "redis+cluster://a:7001?ssl_cert_reqs=none",
        "redis+cluster://a:7001?read_from_replicas=yes",
        "unix+cluster:///a.sock",
    ],
)
def test_an_invalid_cluster_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument):
        validate_redis_url(url)


@pytest.mark.parametrize("url", ["redis+cluster://a:7001/1", "redis+cluster://a:7001?db=1", "redis+cluster://a/0?db=2"])
def test_a_cluster_has_only_database_0(url: str) -> None:
    with pytest.raises(InvalidArgument, match="only database 0"):
        validate_redis_url(url)
    validate_redis_url("redis+cluster://a:7001/0?db=0")
