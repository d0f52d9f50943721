"""The real services of the tests: each works, keeps its data after a SIGKILL, and leaves nothing behind."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient

from services import background
from services.kafka import Kafka
from services.process import Process, ServiceError
from services.redis_cluster import RedisCluster
from services.replica_set import ReplicaSet
from services.slot_migration import SlotMigration
from services.valkey import ValkeyServer
from services.zookeeper import ZooKeeper
from tests.support.wait_until import eventually

pytestmark = pytest.mark.integration

REPOSITORY = Path(__file__).parents[2]


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@contextmanager
def kazoo(service: ZooKeeper) -> Iterator[KazooClient]:
    client = KazooClient(service.hosts, timeout=4.0)
    client.start(60)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def produce(broker: Kafka, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "log_level": 0})
    failures: list[object] = []
    producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(60) == 0
    assert not failures


def consume(broker: Kafka, topic: str, count: int) -> list[bytes]:
    """Return the first values of a topic with one partition."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | {"log_level": 0})
    consumer.subscribe([topic])
    values: list[bytes] = []

    def have_come() -> bool:
        message = consumer.poll(0.1)
        if message is not None and not message.error():
            values.append(message.value() or b"")
        return len(values) == count

    try:
        eventually(have_come, f"{count} records of {topic}", within=60)
    finally:
        consumer.close()
    return values


def test_a_server_that_cannot_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    server = ValkeyServer("valkey", tmp_path, {"maxmemory-policy": "nonsense"})
    with pytest.raises(ServiceError, match=r"(?s)valkey ended before it served.*maxmemory-policy"):
        server.start()
    assert not server.is_running


def test_a_server_that_never_serves_is_killed_at_its_deadline(tmp_path: Path) -> None:
    server = Process("mute", ["sleep", "60"], tmp_path, ready_when=lambda: False, start_s=0.1)
    with pytest.raises(ServiceError, match=r"mute did not serve within 0\.1 s"):
        server.start()
    assert not server.is_running


def test_a_paused_server_does_not_answer_until_it_is_resumed(tmp_path: Path) -> None:
    with ValkeyServer("valkey", tmp_path) as server:
        with server.paused(), server.client(socket_timeout=0.05) as client, pytest.raises(redis.TimeoutError):
            client.ping()
        assert server.call("PING")


def test_a_stopped_server_has_ended(tmp_path: Path) -> None:
    server = ValkeyServer("valkey", tmp_path)
    server.start()
    pid = server.pid
    server.pause()
    server.stop()
    assert is_gone(pid)


def test_a_server_ends_with_the_program_that_started_it(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys; from services.valkey import ValkeyServer; server = ValkeyServer('v', pathlib.Path('.'));"
        " server.start(); print(server.pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    eventually(lambda: not background.is_running(tmp_path, pid), "the server ends with its program")


def test_a_machine_without_java_gets_an_error_with_the_remedy(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from services.jvm import java_command; java_command('Main', heap_mb=1)"],
        cwd=REPOSITORY,
        env={"PATH": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode
    assert "apt-get install default-jre-headless maven" in done.stderr


def test_a_replica_confirms_a_write_and_has_it_when_it_is_promoted(tmp_path: Path) -> None:
    with ReplicaSet(tmp_path, replicas=2) as servers:
        with servers.primary.client() as client:
            client.set("key", "value")
            assert client.wait(2, 10_000) == 2
        old = servers.primary
        old.kill()
        servers.promote(servers.replicas[0])
        assert servers.primary.call("GET", "key") == "value"
        servers.restart(old)
        assert old.call("ROLE")[0] == "slave"


def test_a_killed_primary_restarts_with_its_data(replica_set: ReplicaSet) -> None:
    with replica_set.primary.client() as client:
        client.set("kept", "value")
        assert client.wait(1, 10_000) == 1
    replica_set.restart(replica_set.primary)
    assert replica_set.primary.call("GET", "kept") == "value"
    [replica] = replica_set.replicas
    eventually(lambda: replica_set.is_in_sync(replica), "the replica follows again", within=60)


def test_a_killed_primary_of_the_cluster_is_failed_over_and_returns_as_a_replica(
    redis_cluster: RedisCluster,
) -> None:
    with redis.RedisCluster.from_url(f"redis://{redis_cluster.nodes[0].address}", decode_responses=True) as client:
        client.set("kept", "value")
        slot = client.keyslot("kept")
        old = redis_cluster.primary_of(slot)
        with old.client() as direct:
            assert direct.wait(1, 10_000) == 1
        old.kill()
        redis_cluster.wait_until_settled()
        new = redis_cluster.primary_of(slot)
        assert new is not old
        assert client.get("kept") == "value"
        old.restart()
        redis_cluster.wait_until_settled()
        eventually(lambda: old in redis_cluster.replicas_of(new), "the old primary follows the new", within=60)
        redis_cluster.fail_over(old)
        redis_cluster.wait_until_settled()
        assert redis_cluster.primary_of(slot) is old
        assert client.get("kept") == "value"


def test_a_slot_stays_half_moved_until_a_test_finishes_the_move(redis_cluster: RedisCluster) -> None:
    with redis.RedisCluster.from_url(f"redis://{redis_cluster.nodes[0].address}", decode_responses=True) as client:
        keys = [f"{{half}}{n}" for n in range(20)]
        for key in keys:
            client.set(key, key)
        slot = client.keyslot("{half}")
        source = redis_cluster.primary_of(slot)
        target = next(node for node in redis_cluster.nodes if redis_cluster.replicas_of(node) and node is not source)
        move = SlotMigration(redis_cluster, slot, target)
        move.begin()
        assert move.move(limit=10) == 10
        assert source.call("CLUSTER", "COUNTKEYSINSLOT", slot) == 10
        assert target.call("CLUSTER", "COUNTKEYSINSLOT", slot) == 10
        assert [client.get(key) for key in keys] == keys
        move.move()
        move.finish()
        assert redis_cluster.primary_of(slot) is target
        redis_cluster.migrate(slot, slot, source)
        redis_cluster.wait_until_settled()
        assert redis_cluster.primary_of(slot) is source
        assert [client.get(key) for key in keys] == keys


def test_a_killed_zookeeper_restarts_with_its_nodes(zookeeper: ZooKeeper) -> None:
    with kazoo(zookeeper) as client:
        assert client.client_state == "CONNECTED"
        client.create("/kept", b"value")
    [server] = zookeeper.servers
    server.restart()
    with kazoo(zookeeper) as client:
        assert client.get("/kept")[0] == b"value"
        client.delete("/kept")


def test_a_quorum_continues_without_its_leader_and_accepts_it_again(zookeeper_quorum: ZooKeeper) -> None:
    old = zookeeper_quorum.leader()
    assert old is not None
    with kazoo(zookeeper_quorum) as client:
        client.create("/kept", b"value")
        old.kill()
        eventually(zookeeper_quorum.leader, "another server leads", within=60)
        assert client.retry(client.get, "/kept")[0] == b"value"
        old.restart()
        zookeeper_quorum.wait_until_all_ready()
        client.retry(client.delete, "/kept")


def test_a_quorum_without_a_majority_does_not_serve(zookeeper_quorum: ZooKeeper) -> None:
    first, *others = zookeeper_quorum.servers
    for other in others:
        other.kill()
    eventually(lambda: not first.is_ready(), "the remaining server stops serving", within=60)
    assert zookeeper_quorum.leader() is None
    for other in others:
        other.launch()
    zookeeper_quorum.wait_until_all_ready()
    assert zookeeper_quorum.leader() is not None


def test_a_killed_kafka_restarts_with_its_records(kafka: Kafka) -> None:
    topic = f"kept-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    produce(kafka, topic, b"before")
    assert consume(kafka, topic, 1) == [b"before"]
    kafka.restart()
    produce(kafka, topic, b"after")
    assert consume(kafka, topic, 2) == [b"before", b"after"]
