"""The known gap of the users of `tickwheel acl`: HELLO gives a connection the name of an event process.

No server can refuse HELLO to a user. So a command that finds such a connection names the connection's user, address and
id, by which an administrator can end the connection.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from services.valkey import ValkeyServer
from tests.security.acl_server import serve_with_users
from tickwheel import NamespaceInUse, Tickwheel
from tickwheel.redis.acl import User, users
from tickwheel.storage.fence import client_name, pack_fence
from tickwheel.storage.keys import shard_key

pytestmark = pytest.mark.security

NAMESPACE = "forged"
# The users of another namespace than the one whose event process they pretend to be.
SERVICE, EVENTS, OPERATOR = users("other")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    with serve_with_users(tmp_path_factory.mktemp("forged"), (SERVICE, EVENTS, OPERATOR)) as server:
        yield server


@pytest.fixture
def tickwheel(server: ValkeyServer) -> Iterator[Tickwheel]:
    """A namespace that an event process has driven, and that none drives now."""
    with Tickwheel(server.url, namespace=NAMESPACE, drive=False) as tickwheel:
        with server.client() as admin:
            admin.hset(shard_key(NAMESPACE, 0, "clock"), "fence", pack_fence(3, 1))
        yield tickwheel


@pytest.fixture(params=[SERVICE, EVENTS, OPERATOR], ids=["service", "events", "operator"])
def forger(request: pytest.FixtureRequest, server: ValkeyServer) -> Iterator[tuple[User, Any]]:
    """A user of another namespace, and its connection, which has the name of this namespace's event process."""
    user: User = request.param
    url = f"redis://{user.name}:{user.password}@{server.address}"
    with redis.Redis.from_url(url, protocol=2, single_connection_client=True) as client:
        client.execute_command("HELLO", 3, "SETNAME", client_name(NAMESPACE, 0))
        # A command that the server refuses is the last command of the connection all the same.
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.execute_command("XREAD", "STREAMS", shard_key(NAMESPACE, 0, "inbox"), "0")
        yield user, client


def test_commands_that_need_an_idle_namespace_name_the_forged_connection(
    server: ValkeyServer, tickwheel: Tickwheel, forger: tuple[User, Any]
) -> None:
    user, _ = forger
    with server.client() as admin:
        [connection] = [item for item in admin.client_list() if item["user"] == user.name]
    expected = (
        f"connection {connection['id']} of user '{user.name}' from {connection['addr']} reads the inbox of shard 0",
        f"`CLIENT KILL ID {connection['id']}`",
    )

    with pytest.raises(NamespaceInUse, match="is being driven") as refused:
        tickwheel.delete_namespace()
    assert all(text in str(refused.value) for text in expected)
    reset = run(server, "shards", "reset-epoch", "--yes")
    assert reset.returncode == 1
    assert all(text in reset.stderr for text in expected)

    server.call("CLIENT", "KILL", "ID", connection["id"])
    assert run(server, "shards", "reset-epoch", "--yes").returncode == 0
    assert tickwheel.delete_namespace() > 0


def test_doctor_names_the_user_of_a_connection_that_may_be_forged(
    server: ValkeyServer, tickwheel: Tickwheel, forger: tuple[User, Any]
) -> None:
    user, _ = forger
    findings = {finding["check"]: finding for finding in json.loads(run(server, "--json", "doctor", "--quick").stdout)}
    assert f"follow every shard's inbox, connected as '{user.name}'" in findings["driver"]["text"]


def run(server: ValkeyServer, *command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "tickwheel", "--url", server.url, "--namespace", NAMESPACE, *command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
