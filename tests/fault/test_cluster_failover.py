"""A primary of a cluster is killed or frozen while producers and workers go on."""

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
    """A cluster of the test's own, to be broken."""
    with RedisCluster(tmp_path / "cluster", node_timeout_ms=int(NODE_TIMEOUT_S * 1000)) as started:
        yield started


def id_on(shard: int, name: str) -> str:
    """An id that is routed to the shard."""
    return next(id for id in (f"{name}-{n}" for n in range(10_000)) if shard_of("work", id.encode(), SHARDS) == shard)


def owner(cluster: RedisCluster, shard: int) -> ValkeyServer:
    return cluster.primary_of(hash_slot(shard))


def shard_elsewhere(cluster: RedisCluster, node: ValkeyServer) -> int:
    """A shard that another primary has."""
    return next(shard for shard in range(SHARDS) if owner(cluster, shard).port != node.port)


def has_moved(cluster: RedisCluster, shard: int, node: ValkeyServer) -> bool:
    """Whether another node than this one has the shard."""
    with suppress(ServiceError):
        return owner(cluster, shard).port != node.port
    return False


def elsewhere(cluster: RedisCluster, node: ValkeyServer) -> set[str]:
    """The ids of the messages named "work" on shards that other primaries have."""
    return {id_on(shard, "work") for shard in range(SHARDS) if owner(cluster, shard).port != node.port}


def kill_for_good(cluster: RedisCluster, node: ValkeyServer) -> None:
    """A primary and its replica: nobody takes over."""
    for server in (*cluster.replicas_of(node), node):
        server.kill()


@pytest.mark.parametrize("as_tasks", [False, True], ids=["threads", "tasks"])
def test_with_a_replica_nothing_acknowledged_is_lost_when_a_primary_is_killed(
    cluster: RedisCluster, tmp_path: Path, as_tasks: bool
) -> None:
    with load(cluster, tmp_path, asyncio=as_tasks, durability="replica:1") as work:
        primary = owner(cluster, 1)
        primary.kill()
        eventually(lambda: has_moved(cluster, 1, primary), "its replica takes over", 30)
        # Until it is back, as a replica, the shards of that primary are on one server only.
        primary.start()
        cluster.wait_until_settled()
        work.goes_on()


def test_a_killed_primary_is_followed_by_its_replica_within_the_node_time_out_and_three_seconds(
    cluster: RedisCluster,
) -> None:
    with Tickwheel(cluster.url, shards=SHARDS) as tickwheel:
        work = tickwheel.queue("work")
        work.enqueue(id=id_on(1, "before"))
        owner(cluster, 1).kill()
        killed = time.monotonic()
        assert work.enqueue(id=id_on(1, "after")).created
        assert time.monotonic() - killed <= NODE_TIMEOUT_S + 3


def test_a_frozen_primary_holds_up_its_own_shards_only_until_its_replica_takes_over(cluster: RedisCluster) -> None:
    with Tickwheel(cluster.url, shards=SHARDS) as tickwheel, ThreadPoolExecutor() as threads:
        work = tickwheel.create_queue("work")
        primary = owner(cluster, 1)
        other = shard_elsewhere(cluster, primary)
        for shard in range(SHARDS):
            work.enqueue(id=id_on(shard, "before"))
        with primary.paused():
            held_up = threads.submit(work.enqueue, id=id_on(1, "held up"))
            for n in range(20):
                started = time.monotonic()
                assert work.enqueue(id=id_on(other, f"meanwhile-{n}")).created
                assert time.monotonic() - started < ANSWER_S
            assert held_up.result(30).created
            assert has_moved(cluster, 1, primary)
        # It comes back as a replica, and sends calls on.
        cluster.wait_until_settled()
        assert work.enqueue(id=id_on(1, "after")).created
        assert work.counts()["pending"] == SHARDS + 22


@pytest.mark.parametrize("wait", [None, timedelta(minutes=1)], ids=["at once", "waiting"])
def test_workers_receive_messages_of_other_shards_while_the_servers_of_some_are_gone(
    cluster: RedisCluster, wait: timedelta | None
) -> None:
    timeout = timedelta(seconds=20)
    with Tickwheel(cluster.url, shards=SHARDS, timeout=timeout) as tickwheel:
        work = tickwheel.create_queue("work")
        primary = owner(cluster, 1)
        for shard in range(SHARDS):
            work.enqueue(id=id_on(shard, "work"))
        there = elsewhere(cluster, primary)
        kill_for_good(cluster, primary)
        began = time.monotonic()
        found: set[str] = set()
        while not there <= found:
            found |= {message.id for message in work.dequeue(2, wait=wait)}
        assert found == there
        if wait is not None:
            work.enqueue(id=id_on(shard_elsewhere(cluster, primary), "more"))
            assert work.dequeue(2, wait=wait)
        assert time.monotonic() - began < timeout.total_seconds()


def test_tasks_receive_messages_of_other_shards_while_the_servers_of_some_are_gone(cluster: RedisCluster) -> None:
    timeout = timedelta(seconds=20)

    async def taken() -> None:
        async with aio.Tickwheel(cluster.url, shards=SHARDS, timeout=timeout) as tickwheel:
            work = await tickwheel.create_queue("work")
            primary = owner(cluster, 1)
            for shard in range(SHARDS):
                await work.enqueue(id=id_on(shard, "work"))
            there = elsewhere(cluster, primary)
            kill_for_good(cluster, primary)
            began = time.monotonic()
            found: set[str] = set()
            while not there <= found:
                found |= {message.id for message in await work.dequeue(2)}
            assert found == there
            assert time.monotonic() - began < timeout.total_seconds()

    asyncio.run(taken())


def test_a_call_may_have_happened_only_if_it_reached_the_server(cluster: RedisCluster) -> None:
    timeout = timedelta(milliseconds=500)
    with Tickwheel(cluster.url, shards=SHARDS, timeout=timeout) as tickwheel:
        work = tickwheel.create_queue("work")
        primary = owner(cluster, 1)
        other = shard_elsewhere(cluster, primary)
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
            # Of a batch, the other server has done its part.
            work.enqueue_many([NewMessage(id=id_on(1, "killed")), NewMessage(id=id_on(other, "killed"))])
        assert killed.value.may_have_happened
        assert work.get(id_on(other, "killed")).version == 1
