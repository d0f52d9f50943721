"""A primary of a cluster is killed or frozen under load."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from services.process import ServiceError
from services.redis_cluster import RedisCluster
from services.valkey import ValkeyServer
from tests.fault.cluster_load import load
from tests.support.wait_until import eventually
from tickwheel import NewMessage, Tickwheel, Unavailable, aio
from tickwheel.redis.pools import ANSWER_S
from tickwheel.redis.topology import hash_slot
from tickwheel.storage.sharding import shard_of

pytestmark = pytest.mark.fault

NODE_TIMEOUT_S = 2.0
SHARDS = 12


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RedisCluster]:
    """A separate cluster for a test that breaks it."""
    with RedisCluster(tmp_path / "cluster", node_timeout_ms=int(NODE_TIMEOUT_S * 1000)) as started:
        yield started


def id_on(shard: int, name: str) -> str:
    """Return an id that is routed to the shard."""
    return next(id for id in (f"{name}-{n}" for n in range(10_000)) if shard_of("work", id.encode(), SHARDS) == shard)


def owner(cluster: RedisCluster, shard: int) -> ValkeyServer:
    return cluster.primary_of(hash_slot(shard))


def shard_of_another_primary(cluster: RedisCluster, node: ValkeyServer) -> int:
    """Return a shard whose primary is not ``node``."""
    return next(shard for shard in range(SHARDS) if owner(cluster, shard).port != node.port)


def has_moved(cluster: RedisCluster, shard: int, node: ValkeyServer) -> bool:
    """Return whether the primary of the shard is a node other than ``node``."""
    with suppress(ServiceError):
        return owner(cluster, shard).port != node.port
    return False


def ids_on_other_primaries(cluster: RedisCluster, node: ValkeyServer) -> set[str]:
    """Return the id `id_on(shard, "work")` of each shard that is not on ``node``."""
    return {id_on(shard, "work") for shard in range(SHARDS) if owner(cluster, shard).port != node.port}


def kill_with_replicas(cluster: RedisCluster, node: ValkeyServer) -> None:
    """Kill a primary and its replicas, so that no server takes over."""
    for server in (*cluster.replicas_of(node), node):
        server.kill()


@pytest.mark.parametrize("as_tasks", [False, True], ids=["threads", "tasks"])
def test_a_killed_primary_loses_no_message_that_its_replica_acknowledged(
    cluster: RedisCluster, tmp_path: Path, as_tasks: bool
) -> None:
    with load(cluster, tmp_path, asyncio=as_tasks, durability="replica:1") as work:
        primary = owner(cluster, 1)
        primary.kill()
        eventually(lambda: has_moved(cluster, 1, primary), "the replica takes over", 30)
        # Until the old primary is back as a replica, only the new primary has the shards.
        primary.start()
        cluster.wait_until_settled()
        work.wait_for_progress()


def test_a_replica_replaces_a_killed_primary_within_the_node_timeout_plus_three_seconds(
    cluster: RedisCluster,
) -> None:
    with Tickwheel(cluster.url, shards=SHARDS) as tickwheel:
        work = tickwheel.queue("work")
        work.enqueue(id=id_on(1, "before"))
        owner(cluster, 1).kill()
        killed = time.monotonic()
        assert work.enqueue(id=id_on(1, "after")).created
        assert time.monotonic() - killed <= NODE_TIMEOUT_S + 3


def test_a_frozen_primary_delays_only_calls_to_its_own_shards_until_its_replica_takes_over(
    cluster: RedisCluster,
) -> None:
    with Tickwheel(cluster.url, shards=SHARDS) as tickwheel, ThreadPoolExecutor() as threads:
        work = tickwheel.create_queue("work")
        primary = owner(cluster, 1)
        other = shard_of_another_primary(cluster, primary)
        for shard in range(SHARDS):
            work.enqueue(id=id_on(shard, "before"))
        with primary.paused():
            delayed = threads.submit(work.enqueue, id=id_on(1, "delayed"))
            for n in range(20):
                started = time.monotonic()
                assert work.enqueue(id=id_on(other, f"meanwhile-{n}")).created
                assert time.monotonic() - started < ANSWER_S
            assert delayed.result(30).created
            assert has_moved(cluster, 1, primary)
        # The old primary is a replica now, and redirects calls.
        cluster.wait_until_settled()
        assert work.enqueue(id=id_on(1, "after")).created
        assert work.counts()["pending"] == SHARDS + 22


@pytest.mark.parametrize("wait", [None, timedelta(minutes=1)], ids=["without-waiting", "waiting"])
def test_workers_receive_the_messages_of_reachable_shards_while_other_shards_have_no_server(
    cluster: RedisCluster, wait: timedelta | None
) -> None:
    timeout = timedelta(seconds=20)
    with Tickwheel(cluster.url, shards=SHARDS, timeout=timeout) as tickwheel:
        work = tickwheel.create_queue("work")
        primary = owner(cluster, 1)
        for shard in range(SHARDS):
            work.enqueue(id=id_on(shard, "work"))
        reachable = ids_on_other_primaries(cluster, primary)
        kill_with_replicas(cluster, primary)
        began = time.monotonic()
        received: set[str] = set()
        while not reachable <= received:
            received |= {message.id for message in work.dequeue(2, wait=wait)}
        assert received == reachable
        if wait is not None:
            work.enqueue(id=id_on(shard_of_another_primary(cluster, primary), "more"))
            assert work.dequeue(2, wait=wait)
        assert time.monotonic() - began < timeout.total_seconds()


def test_tasks_receive_the_messages_of_reachable_shards_while_other_shards_have_no_server(
    cluster: RedisCluster,
) -> None:
    timeout = timedelta(seconds=20)

    async def receive_from_reachable_shards() -> None:
        async with aio.Tickwheel(cluster.url, shards=SHARDS, timeout=timeout) as tickwheel:
            work = await tickwheel.create_queue("work")
            primary = owner(cluster, 1)
            for shard in range(SHARDS):
                await work.enqueue(id=id_on(shard, "work"))
            reachable = ids_on_other_primaries(cluster, primary)
            kill_with_replicas(cluster, primary)
            began = time.monotonic()
            received: set[str] = set()
            while not reachable <= received:
                received |= {message.id for message in await work.dequeue(2)}
            assert received == reachable
            assert time.monotonic() - began < timeout.total_seconds()

    asyncio.run(receive_from_reachable_shards())


def test_a_call_may_have_happened_only_if_it_reached_the_server(cluster: RedisCluster) -> None:
    timeout = timedelta(milliseconds=500)
    with Tickwheel(cluster.url, shards=SHARDS, timeout=timeout) as tickwheel:
        work = tickwheel.create_queue("work")
        primary = owner(cluster, 1)
        other = shard_of_another_primary(cluster, primary)
        for shard in range(SHARDS):
            work.enqueue(id=id_on(shard, "before"))
        with primary.paused(), pytest.raises(Unavailable) as frozen:
            work.enqueue(id=id_on(1, "frozen"))
        assert frozen.value.may_have_happened
        cluster.wait_until_settled()
        primary = owner(cluster, 1)
        primary.kill()
        with pytest.raises(Unavailable) as killed:
            work.enqueue(id=id_on(1, "alone"))
        assert not killed.value.may_have_happened
        with pytest.raises(Unavailable) as killed:
            # The other server has executed its part of the batch.
            work.enqueue_many([NewMessage(id=id_on(1, "killed")), NewMessage(id=id_on(other, "killed"))])
        assert killed.value.may_have_happened
        assert work.get(id_on(other, "killed")).version == 1
