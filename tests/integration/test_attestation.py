"""`durability="fsync"` for users that may not run CONFIG GET: an administrator attests the servers."""

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from services.redis_cluster import RedisCluster
from services.serving_program import SERVE, ServingProgram
from services.valkey import ValkeyServer
from tests.integration.cli.command_runner import document
from tickwheel import NotDurable, Tickwheel, aio
from tickwheel.cli.app import app
from tickwheel.redis.acl import users
from tickwheel.storage.keys import namespace_key

pytestmark = pytest.mark.integration

NAMESPACE = "attested"
SERVICE, _, OPERATOR = users(NAMESPACE)
Doctor = Callable[..., Result]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A server that writes to its disk before it answers, with the namespace and its users."""
    file = tmp_path / "users.acl"
    file.write_text("\n".join(["user default on nopass ~* &* +@all", SERVICE.rule, OPERATOR.rule]) + "\n")
    with ValkeyServer("valkey", tmp_path, {"aclfile": str(file), "appendfsync": "always"}) as server:
        Tickwheel(server.url, namespace=NAMESPACE).close()
        yield server


@pytest.fixture
def doctor(server: ValkeyServer) -> Doctor:
    """Run `tickwheel doctor`, by default as the user default; fail if the exit code is not the expected one."""

    def run(*options: str, url: str = server.url, code: int = 0) -> Result:
        command = ["doctor", "--quick", "--url", url, "--namespace", NAMESPACE, *options]
        result = CliRunner().invoke(app, command)
        assert result.exit_code == code, f"{result.stdout}\n{result.stderr}\n{result.exception!r}"
        return result

    return run


def user_url(server: ValkeyServer, user: Any = SERVICE) -> str:
    return f"redis://{user.name}:{user.password}@{server.address}"


def open_durably(server: ValkeyServer) -> None:
    Tickwheel(user_url(server), namespace=NAMESPACE, durability="fsync").close()


def test_a_server_that_is_not_attested_is_refused_with_both_remedies(server: ValkeyServer) -> None:
    with pytest.raises(NotDurable, match="there is no attestation of this server") as refused:
        open_durably(server)
    for remedy in (
        "`tickwheel doctor --attest --namespace attested` as an administrator",
        "let this user run CONFIG GET",
    ):
        assert remedy in str(refused.value)
    Tickwheel(user_url(server), namespace=NAMESPACE, durability="memory").close()


def test_clients_and_the_service_accept_an_attested_server(
    server: ValkeyServer, doctor: Doctor, tmp_path: Path
) -> None:
    findings = document(doctor("--attest", "--json"))
    assert [finding["verdict"] for finding in findings if finding["check"] == "attested"] == ["ok"]
    open_durably(server)

    async def open_with_asyncio() -> None:
        async with aio.Tickwheel(user_url(server), namespace=NAMESPACE, durability="fsync"):
            pass

    asyncio.run(open_with_asyncio())
    with (
        ServingProgram(
            tmp_path, *SERVE, user_url(server), "--namespace", NAMESPACE, "--durability", "fsync"
        ) as service,
        Tickwheel(service.url, namespace=NAMESPACE) as tickwheel,
    ):
        assert tickwheel.queue("jobs").enqueue(b"x").created
    findings = document(doctor("--json", url=user_url(server, OPERATOR)))
    assert [(f["verdict"], "fsync, as attested" in f["text"]) for f in findings if f["check"] == "durability"] == [
        ("ok", True)
    ]


def test_an_attestation_ends_with_the_next_start_of_the_server(server: ValkeyServer, doctor: Doctor) -> None:
    doctor("--attest")
    server.restart()
    with pytest.raises(NotDurable, match="the server was restarted since its attestation"):
        open_durably(server)
    doctor("--attest")
    open_durably(server)


@pytest.mark.parametrize("change", [("SET", "appendfsync", "everysec"), ("SET", "maxclients", "5000")])
def test_an_attestation_ends_when_a_setting_may_have_changed(
    server: ValkeyServer, doctor: Doctor, change: tuple[str, ...]
) -> None:
    doctor("--attest")
    server.call("CONFIG", *change)
    with pytest.raises(NotDurable, match="settings of the server may have changed since its attestation"):
        open_durably(server)


def test_a_reset_of_the_statistics_cannot_hide_a_change(server: ValkeyServer, doctor: Doctor) -> None:
    reset = "CONFIG RESETSTAT was run since the start of the server"
    doctor("--attest")
    server.call("CONFIG", "RESETSTAT")
    with pytest.raises(NotDurable, match=reset):
        open_durably(server)
    # An attestation now would equal that after another change and another reset.
    assert f"not stored: {reset}" in doctor("--attest", code=1).stdout
    run_id = server.call("INFO", "server")["run_id"]
    server.call("HSET", namespace_key(NAMESPACE), "attested", f"{run_id}:0:1")
    server.call("CONFIG", "SET", "appendfsync", "everysec")
    server.call("CONFIG", "RESETSTAT")
    with pytest.raises(NotDurable, match=reset):
        open_durably(server)
    server.restart()
    doctor("--attest")
    open_durably(server)


def test_a_server_without_an_append_only_file_is_refused(server: ValkeyServer, doctor: Doctor) -> None:
    doctor("--attest")
    server.call("CONFIG", "SET", "appendonly", "no")
    with pytest.raises(NotDurable, match="the server has no append-only file"):
        open_durably(server)


def test_a_server_that_does_not_write_before_it_answers_loses_its_attestation(
    server: ValkeyServer, doctor: Doctor
) -> None:
    doctor("--attest")
    server.call("CONFIG", "SET", "appendfsync", "everysec")
    text = doctor("--attest", code=1).stdout
    assert "this server has appendfsync everysec: run `CONFIG SET appendfsync always`" in text
    assert server.call("HGET", namespace_key(NAMESPACE), "attested") == ""
    with pytest.raises(NotDurable):
        open_durably(server)


def test_a_server_without_fsync_during_a_rewrite_is_not_attested(server: ValkeyServer, doctor: Doctor) -> None:
    server.call("CONFIG", "SET", "no-appendfsync-on-rewrite", "yes")
    text = doctor("--attest", code=1).stdout
    assert "this server has no-appendfsync-on-rewrite yes: run `CONFIG SET no-appendfsync-on-rewrite no`" in text
    assert "for fsync, run `CONFIG SET no-appendfsync-on-rewrite no`" in text
    with pytest.raises(NotDurable):
        open_durably(server)


def test_the_attestation_of_an_earlier_version_does_not_count(server: ValkeyServer) -> None:
    run_id = server.call("INFO", "server")["run_id"]
    # Earlier versions did not check no-appendfsync-on-rewrite.
    server.call("HSET", namespace_key(NAMESPACE), "attested", f"{run_id}:0:0")
    with pytest.raises(NotDurable, match="the attestation is of an earlier version of Tickwheel"):
        open_durably(server)


def test_only_a_user_with_config_get_can_attest(server: ValkeyServer, doctor: Doctor) -> None:
    text = doctor("--attest", url=user_url(server, OPERATOR), code=1).stdout
    assert "nothing was stored, because this user may not run CONFIG GET: use an administrator" in text
    assert server.call("HEXISTS", namespace_key(NAMESPACE), "attested") == 0


def test_a_user_with_config_get_needs_no_attestation(server: ValkeyServer) -> None:
    server.call("ACL", "SETUSER", SERVICE.name, "+config|get")
    open_durably(server)
    server.call("CONFIG", "SET", "appendfsync", "everysec")
    with pytest.raises(NotDurable, match="this server has appendfsync everysec"):
        open_durably(server)


def test_every_primary_of_a_cluster_is_attested(redis_cluster: RedisCluster) -> None:
    namespace = f"attested-{os.urandom(4).hex()}"
    service = users(namespace)[0]
    url = f"redis+cluster://{service.name}:{service.password}@{redis_cluster.addresses}"
    Tickwheel(redis_cluster.url, namespace=namespace, shards=12).close()
    try:
        for node in redis_cluster.nodes:
            node.call("ACL", "SETUSER", *service.rule.split()[1:])
            node.call("CONFIG", "SET", "appendfsync", "always")
        with pytest.raises(NotDurable, match="there is no attestation"):
            Tickwheel(url, namespace=namespace, durability="fsync")
        command = ["doctor", "--attest", "--quick", "--json", "--url", redis_cluster.url, "--namespace", namespace]
        done = CliRunner().invoke(app, command)
        assert len([f for f in document(done) if (f["check"], f["verdict"]) == ("attested", "ok")]) == 3
        Tickwheel(url, namespace=namespace, durability="fsync").close()
        redis_cluster.primary_of(8_000).call("CONFIG", "SET", "maxclients", "9000")
        with pytest.raises(NotDurable, match="settings of the server may have changed"):
            Tickwheel(url, namespace=namespace, durability="fsync")
    finally:
        for node in redis_cluster.nodes:
            node.call("CONFIG", "SET", "appendfsync", "everysec")
            node.call("ACL", "DELUSER", service.name)
