"""A cluster that names servers of other machines: if TLS is required, no client connects to them without TLS."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import pytest

from services.redis_cluster import RedisCluster
from services.slot_migration import SlotMigration
from services.valkey import ValkeyServer
from tests.integration.blocking_aio import blocking_aio
from tests.support.wait_until import eventually
from tickwheel import Tickwheel, TickwheelError
from tickwheel.redis.encryption import VARIABLE, check_server
from tickwheel.redis.topology import hash_slot

pytestmark = pytest.mark.security

ELSEWHERE = "node.example"
WAIT = timedelta(seconds=60)
ENDS_S = 60
REFUSED = rf"'{ELSEWHERE}:\d+', which the cluster of .* names, would receive data without TLS"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    with RedisCluster(tmp_path_factory.mktemp("cluster"), primaries=2, replicas=0) as started:
        yield started


@pytest.fixture
def looked_up(cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of hosts that this process looks up. The name of the other machine leads to this machine."""
    hosts: list[str] = []
    lookup = socket.getaddrinfo

    def record(host: Any, *arguments: Any, **options: Any) -> Any:
        hosts.append(host)
        return lookup("127.0.0.1" if host == ELSEWHERE else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", record)
    announce(cluster, "ip")
    return hosts


def announce(cluster: RedisCluster, kind: str) -> None:
    """Let the servers of the cluster name each other by their addresses ("ip") or as another machine ("hostname")."""
    for node in cluster.nodes:
        node.call("CONFIG", "SET", "cluster-announce-hostname", ELSEWHERE)
        node.call("CONFIG", "SET", "cluster-preferred-endpoint-type", kind)
    hosts = {ELSEWHERE if kind == "hostname" else "127.0.0.1"}
    eventually(lambda: all(named_hosts(node) == hosts for node in cluster.nodes), f"all nodes name {hosts}")


def named_hosts(node: ValkeyServer) -> set[str]:
    return {primary[0] for _, _, primary, *_ in node.call("CLUSTER", "SLOTS")}


Client = Callable[..., AbstractContextManager[Any]]
both_clients = pytest.mark.parametrize("client", [Tickwheel, blocking_aio], ids=["blocking", "asyncio"])


@pytest.fixture
def tls_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")


@both_clients
@pytest.mark.usefixtures("tls_required")
def test_a_client_does_not_open_a_cluster_that_names_another_machine(
    client: Client, cluster: RedisCluster, looked_up: list[str]
) -> None:
    announce(cluster, "hostname")
    with pytest.raises(TickwheelError, match=REFUSED) as refused, client(cluster.url, namespace="slots"):
        pass
    assert f"{VARIABLE} is 1: use rediss+cluster://" in str(refused.value)
    assert ELSEWHERE not in looked_up


@both_clients
@pytest.mark.parametrize("redirect", ["ASK", "MOVED"])
@pytest.mark.usefixtures("tls_required")
def test_a_client_does_not_follow_a_redirect_to_another_machine(
    client: Client, redirect: str, cluster: RedisCluster, looked_up: list[str]
) -> None:
    slot = hash_slot(0)
    with client(cluster.url, namespace=redirect.lower(), shards=1) as tickwheel:
        queue = tickwheel.create_queue("work")
        queue.enqueue(b"", id="before")
        announce(cluster, "hostname")
        source = cluster.primary_of(slot)
        migration = SlotMigration(cluster, slot, next(node for node in cluster.nodes if node is not source))
        migration.begin()
        migration.move()
        if redirect == "MOVED":
            migration.finish()
        with pytest.raises(TickwheelError, match=REFUSED):
            queue.enqueue(b"", id="after")
        if redirect == "ASK":
            migration.finish()
    assert ELSEWHERE not in looked_up


@both_clients
@pytest.mark.usefixtures("tls_required")
def test_a_waiting_dequeue_does_not_subscribe_at_another_machine(
    client: Client, cluster: RedisCluster, looked_up: list[str]
) -> None:
    slot = hash_slot(0)
    with client(cluster.url, namespace="waits", shards=1) as tickwheel, ThreadPoolExecutor(1) as thread:
        queue = tickwheel.create_queue("work")
        waiting = thread.submit(queue.dequeue, wait=WAIT)
        source = cluster.primary_of(slot)
        eventually(lambda: source.call("PUBSUB", "SHARDCHANNELS", "waits:*"), "the dequeue waits")
        announce(cluster, "hostname")
        SlotMigration(cluster, slot, next(node for node in cluster.nodes if node is not source)).run()
        with pytest.raises(TickwheelError, match=REFUSED):
            waiting.result(ENDS_S)
    assert ELSEWHERE not in looked_up


def test_an_event_process_does_not_connect_to_another_machine(cluster: RedisCluster, looked_up: list[str]) -> None:
    with Tickwheel(cluster.url, namespace="events", shards=1):
        announce(cluster, "hostname")
    ended = subprocess.run(
        [sys.executable, "-m", "tickwheel", "events", "--namespace", "events"],
        env=os.environ | {"TICKWHEEL_URL": cluster.url, VARIABLE: "1"},
        capture_output=True,
        text=True,
        timeout=ENDS_S,
        check=False,
    )
    assert ended.returncode == 1
    assert f"{ELSEWHERE}:" in ended.stderr
    assert f"{VARIABLE} is 1" in ended.stderr


@both_clients
def test_without_the_requirement_a_cluster_may_name_another_machine(
    client: Client, cluster: RedisCluster, looked_up: list[str]
) -> None:
    announce(cluster, "hostname")
    with client(cluster.url, namespace="named", shards=1) as tickwheel:
        tickwheel.create_queue("work").enqueue(b"")
    assert ELSEWHERE in looked_up


@pytest.mark.usefixtures("tls_required")
@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("redis+cluster://127.0.0.1", "127.0.0.1@192.0.2.1:6379"),
        ("redis+cluster://127.0.0.1", "?host=192.0.2.1&x=:6379"),
        ("redis+cluster://127.0.0.1", "[::1%32]:6379"),
        ("redis://192.0.2.1", ""),
    ],
)
def test_the_check_reads_a_name_as_the_connection_reads_it(url: str, server: str) -> None:
    with pytest.raises(TickwheelError, match=VARIABLE):
        check_server(url, server)


@pytest.mark.usefixtures("tls_required")
@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("redis+cluster://127.0.0.1", "localhost:6379"),
        ("redis+cluster://127.0.0.1", "[::1]:6379"),
        ("rediss+cluster://127.0.0.1", "192.0.2.1:6379"),
        ("unix:///run/redis.sock", ""),
    ],
)
def test_the_check_accepts_encrypted_and_local_servers(url: str, server: str) -> None:
    check_server(url, server)
