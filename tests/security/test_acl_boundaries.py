"""What the users of `tickwheel acl` may not do, on Valkey and on Redis: see `tests/support/forbidden_commands.py`."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from services.debian_redis import DebianRedis
from services.valkey import ValkeyServer
from tests.support.forbidden_commands import (
    ALL,
    EVENTS,
    FORBIDDEN,
    FOREIGN,
    NAMESPACE,
    OTHER,
    SERVICE,
    forbidden_table,
    refused_commands,
    table_of_page,
)
from tickwheel import Tickwheel
from tickwheel.redis.acl import users
from tickwheel.storage.keys import shard_key

pytestmark = pytest.mark.security

USERS = dict(zip((SERVICE, EVENTS, "operator"), users(NAMESPACE), strict=True))
REPLICA_PASSWORD = "password-of-the-replicas"
SECRETS = (REPLICA_PASSWORD, "secret-queue", "secret-client", f"{OTHER}:{{0}}")

# The texts of Valkey and of Redis 7.0. Some commands are not allowed in scripts at all.
_REFUSED_IN_A_SCRIPT = r"ACL failure in script|The user executing the script can't|not allowed from script"


@pytest.fixture(scope="module", params=[ValkeyServer, DebianRedis], ids=["valkey", "redis"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    """A server with a user for replicas, as docs/security.md advises, and with data of another namespace."""
    folder = tmp_path_factory.mktemp("boundaries")
    file = folder / "users.acl"
    rules = [user.rule for user in USERS.values()]
    replicas = f"user repl on >{REPLICA_PASSWORD} +psync +replconf +ping"
    file.write_text("\n".join(["user default on nopass ~* &* +@all", replicas, *rules]) + "\n")
    settings = {
        "aclfile": str(file),
        "masteruser": "repl",
        "masterauth": REPLICA_PASSWORD,
        # The server must refuse these commands to the users, and not to everybody.
        "enable-debug-command": "yes",
        "enable-module-command": "yes",
        "notify-keyspace-events": "KEA",
    }
    with request.param("server", folder, settings) as server:
        with Tickwheel(server.url, namespace=OTHER) as other:
            other.queue("secret-queue").enqueue(b"payload", id="m")
        Tickwheel(server.url, namespace=NAMESPACE).close()
        yield server


def connect(server: ValkeyServer, user: str) -> Any:
    account = USERS[user]
    return redis.Redis.from_url(
        f"redis://{account.name}:{account.password}@{server.address}", protocol=2, decode_responses=True
    )


@pytest.mark.parametrize("user", ALL)
def test_the_server_refuses_every_forbidden_command(server: ValkeyServer, user: str) -> None:
    with connect(server, user) as session:
        accepted = [command for command in refused_commands(user) if not is_refused(session, command.split())]
    assert accepted == []


def is_refused(session: Any, command: list[str]) -> bool:
    try:
        session.execute_command(*command)
    except redis.exceptions.NoPermissionError:
        return True
    except redis.RedisError as error:
        pytest.fail(f"{command}: the server did not check the permission: {error}")
    return False


@pytest.mark.parametrize("user", ALL)
def test_a_script_can_do_no_more_than_its_user(server: ValkeyServer, user: str) -> None:
    with connect(server, user) as session:
        sha = session.script_load("return redis.call(unpack(ARGV))")
        for command in refused_commands(user):
            with pytest.raises(redis.exceptions.ResponseError, match=_REFUSED_IN_A_SCRIPT):
                session.evalsha(sha, 0, *command.split())


@pytest.mark.parametrize("user", ALL)
def test_another_database_of_the_server_has_the_same_boundaries(server: ValkeyServer, user: str) -> None:
    with connect(server, user) as session:
        session.execute_command("SELECT", 1)
        assert is_refused(session, ["EXISTS", FOREIGN])


@pytest.mark.parametrize("user", ALL)
def test_what_a_user_may_read_about_the_server_names_nothing_of_other_namespaces(
    server: ValkeyServer, user: str
) -> None:
    with server.client(client_name="secret-client") as other, connect(server, user) as session:
        other.ping()
        seen = str(session.execute_command("INFO", "everything")) + str(session.execute_command("INFO", "keyspace"))
    assert not [secret for secret in SECRETS if secret in seen]


def test_the_password_of_the_replicas_is_out_of_reach(server: ValkeyServer) -> None:
    """The way from a namespace's user to all data: read masterauth, log in with it, and receive the data as a replica.

    It ends at its first step.
    """
    for user in ALL:
        with connect(server, user) as session, pytest.raises(redis.exceptions.NoPermissionError):
            session.config_get("masterauth")
    # The other steps work for anyone who knows the password.
    with redis.Redis.from_url(f"redis://repl:{REPLICA_PASSWORD}@{server.address}", protocol=2) as replica:
        assert replica.ping()
    assert server.call("CONFIG", "GET", "masterauth")[1] == REPLICA_PASSWORD


def test_the_users_work_in_their_own_namespace(server: ValkeyServer) -> None:
    for user in ALL:
        with connect(server, user) as session:
            assert session.execute_command("HGET", shard_key(NAMESPACE, 0, "namespace"), "shards") == "1"


def test_the_table_of_the_page_has_what_is_tested() -> None:
    assert table_of_page() == forbidden_table(), "run `python -m tests.support.forbidden_commands`"
    assert all(commands for _, commands in FORBIDDEN.values())
