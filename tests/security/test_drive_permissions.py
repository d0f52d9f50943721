"""A worker drives as a last resort only as a user of the server who may do all that a leader does."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from services.valkey import ValkeyServer
from tests.fault.worker_processes import Worker
from tests.security.acl_server import serve_with_users
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.model.served_topics import ServedTopics
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.driving.obstacles import find_obstacle
from tickwheel.redis.acl import User, users
from tickwheel.redis.blocking_executor import RedisExecutor
from tickwheel.redis.pools import ConnectionPools

pytestmark = pytest.mark.security

NAMESPACE = "tw"
RELAYED_NAMESPACE = "relayed"
SERVICE, EVENTS, OPERATOR = users(NAMESPACE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    with serve_with_users(tmp_path_factory.mktemp("acl"), (SERVICE, EVENTS, OPERATOR)) as server:
        Tickwheel(server.url, namespace=NAMESPACE, shards=2).close()
        yield server


def url(server: ValkeyServer, user: User) -> str:
    return f"redis://{user.name}:{user.password}@{server.address}"


def obstacle(server_url: str, namespace: str = NAMESPACE, topics: ServedTopics | None = None, replicas: int = 0) -> str:
    with closing(RedisExecutor(ConnectionPools(server_url, 5.0), "the server", 5.0)) as io:
        found = io.run(find_obstacle(NamespaceContext(namespace), "lease", topics=topics, replicas=replicas))
    return "" if found is None else found.text


def test_the_user_for_event_processes_and_the_default_user_may_drive(server: ValkeyServer) -> None:
    assert obstacle(url(server, EVENTS)) == ""
    assert obstacle(server.url) == ""


@pytest.mark.parametrize("user", [SERVICE, OPERATOR], ids=["service", "operator"])
def test_the_other_users_may_not_drive(server: ValkeyServer, user: User) -> None:
    assert "may not do all that a leader does" in obstacle(url(server, user))


@pytest.mark.parametrize(
    "rule",
    [
        *("-xread", "-client|setname", "-ssubscribe", "-spublish", "-hset", "-script|load"),
        *("resetchannels", "resetkeys ~tw:{*}:clock ~tw:{*}:inbox ~tw:{*}:q:* ~tw:{*}:namespace ~tw:{*}:queues"),
        "resetkeys %R~tw:{*}:*",
    ],
)
def test_a_user_who_lacks_one_right_may_not_drive(server: ValkeyServer, rule: str) -> None:
    allowed = EVENTS.rule.split()[2:]
    server.call("ACL", "SETUSER", "lacking", "reset", *allowed, "nopass", *rule.split())
    # Another program has loaded the scripts, so the user can call them.
    assert obstacle(server.url) == ""
    assert "may not do all that a leader does" in obstacle(f"redis://lacking:x@{server.address}")


def test_only_a_user_who_may_wait_for_replicas_relays_events_that_replicas_have(server: ValkeyServer) -> None:
    allowed = EVENTS.rule.split()[2:]
    server.call("ACL", "SETUSER", "waitless", "reset", *allowed, "nopass", "-wait")
    Tickwheel(server.url, namespace=RELAYED_NAMESPACE, history="relay").close()
    server.call("ACL", "SETUSER", "waitless", f"~{RELAYED_NAMESPACE}:*", f"&{RELAYED_NAMESPACE}:*")
    waitless = f"redis://waitless:x@{server.address}"
    topics = ServedTopics("transitions")
    assert obstacle(waitless, RELAYED_NAMESPACE, topics) == ""
    assert "such as WAIT 1" in obstacle(waitless, RELAYED_NAMESPACE, topics, replicas=1)
    assert obstacle(server.url, RELAYED_NAMESPACE, topics, replicas=1) == ""
    # No relay runs in this namespace.
    assert obstacle(waitless, NAMESPACE, topics, replicas=1) == ""


def test_a_worker_of_the_user_for_clients_does_not_drive_and_logs_the_reason_once(
    server: ValkeyServer, tmp_path: Path
) -> None:
    with Worker(url(server, SERVICE), NAMESPACE, tmp_path, drive="auto") as worker:
        eventually(lambda: "no event process drives" in worker.log, "the worker warns", 60)
        assert worker.log.count("may not do all that a leader does") == 1
        assert worker.is_running
