"""What a server must be and allow: a user's rights, durability, no eviction. Refused before anything is written."""

from collections.abc import Iterator
from typing import Any

import pytest

from tickwheel import Forbidden, NotDurable, Tickwheel
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration


@pytest.fixture
def private() -> Iterator[PrivateServer]:
    """A server whose settings a test may change."""
    with PrivateServer(appendonly=True) as server:
        yield server


@pytest.fixture
def admin(private: PrivateServer) -> Iterator[Any]:
    with private.client() as client:
        yield client


def url_of(server: PrivateServer, user: str, password: str) -> str:
    """The server's URL for one of its users."""
    return f"{server.url.replace('unix://', f'unix://{user}@')}?password={password}"


def test_a_wrong_password_is_forbidden_at_once(private: PrivateServer, admin: Any) -> None:
    admin.execute_command("ACL", "SETUSER", "worker", "on", ">right", "~*", "&*", "+@all")
    with Tickwheel(url_of(private, "worker", "right")) as tickwheel:
        assert tickwheel.queue("jobs").enqueue().created
    with pytest.raises(Forbidden, match="the server refused this user") as refused:
        Tickwheel(url_of(private, "worker", "wrong"))
    assert "wrong" not in str(refused.value).replace("WRONGPASS", "")


def test_a_user_without_the_right_to_write_is_forbidden_and_changes_nothing(private: PrivateServer, admin: Any) -> None:
    with Tickwheel(private.url) as tickwheel:
        tickwheel.queue("jobs").enqueue(id="m")
    admin.execute_command("ACL", "SETUSER", "reader", "on", ">p", "~*", "&*", "+@all", "-@scripting")
    before = {key: admin.dump(key) for key in admin.scan_iter()}
    with Tickwheel(url_of(private, "reader", "p")) as tickwheel:
        queue = tickwheel.queue("jobs")
        assert queue.config().max_attempts == 5
        for refused in (queue.enqueue, queue.dequeue, queue.counts, lambda: queue.cancel("m")):
            with pytest.raises(Forbidden, match=r"the server refused this user: .*no permissions"):
                refused()
    assert {key: admin.dump(key) for key in admin.scan_iter()} == before


def test_a_user_of_other_keys_is_forbidden(private: PrivateServer, admin: Any) -> None:
    admin.execute_command("ACL", "SETUSER", "other", "on", ">p", "~other:*", "&*", "+@all")
    with Tickwheel(url_of(private, "other", "p"), namespace="other") as tickwheel:
        assert tickwheel.queue("jobs").enqueue().created
    with pytest.raises(Forbidden):
        Tickwheel(url_of(private, "other", "p"), namespace="tw")


@pytest.mark.parametrize(
    ("appendonly", "appendfsync", "fit"),
    [("yes", "always", True), ("yes", "everysec", False), ("yes", "no", False), ("no", "always", False)],
)
def test_fsync_is_promised_only_by_a_server_that_writes_before_it_answers(
    private: PrivateServer, admin: Any, appendonly: str, appendfsync: str, fit: bool
) -> None:
    admin.config_set("appendfsync", appendfsync)
    admin.config_set("appendonly", appendonly)
    if fit:
        Tickwheel(private.url, durability="fsync").close()
        return
    with pytest.raises(NotDurable, match=f"appendfsync always; this one has {appendonly} and {appendfsync}"):
        Tickwheel(private.url, durability="fsync")
    assert admin.dbsize() == 0
    Tickwheel(private.url, durability="memory").close()


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "allkeys-random"])
def test_a_server_that_evicts_is_refused(private: PrivateServer, admin: Any, policy: str) -> None:
    admin.config_set("maxmemory-policy", policy)
    # Without a limit nothing is ever evicted.
    Tickwheel(private.url, namespace="unlimited").close()
    admin.config_set("maxmemory", "100mb")
    with pytest.raises(NotDurable, match=rf"evicts keys .*maxmemory-policy {policy}.*set it to noeviction"):
        Tickwheel(private.url)
    assert not list(admin.scan_iter(match="tw:*"))
    admin.config_set("maxmemory-policy", "noeviction")
    Tickwheel(private.url).close()
