"""Who waits on a cluster is woken by the server that has the shard, also when that has become another one."""

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from services.redis_cluster import RedisCluster
from services.slot_migration import SlotMigration
from tests.integration.blocking_aio import Blocking, LoopThread
from tests.support.wait_until import eventually
from tickwheel import Message, Tickwheel, aio
from tickwheel.redis.topology import hash_slot
from tickwheel.redis.wait_list import WaitList
from tickwheel.storage.keys import queue_key
from tickwheel.storage.sharding import shard_of

pytestmark = pytest.mark.fault

SHARDS, SHARD = 12, 1
ID = next(id for id in map(str, range(1_000)) if shard_of("work", id.encode(), SHARDS) == SHARD)
CLIENTS = pytest.mark.parametrize("asyncio", [False, True], ids=["thread", "task"])


@pytest.fixture(autouse=True)
def _no_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is woken but by a message, and when wake-ups were lost."""
    monkeypatch.setattr(WaitList, "sweep", lambda _: None)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RedisCluster]:
    """A cluster of the test's own, to be broken."""
    with RedisCluster(tmp_path / "cluster") as started:
        yield started


@contextmanager
def asleep(cluster: RedisCluster, asyncio: bool) -> Iterator[tuple[Tickwheel, Future[list[Message]]]]:
    """A dequeuer of another client that has looked, and waits."""
    namespace = f"wake-{os.urandom(4).hex()}"
    loop = LoopThread()
    try:
        with Tickwheel(cluster.url, namespace=namespace, shards=SHARDS) as tickwheel, ThreadPoolExecutor() as threads:
            tickwheel.create_queue("work")
            waiter: Any
            if asyncio:
                waiter = Blocking(loop, aio.Tickwheel(cluster.url, namespace=namespace))
                waiter.open()
            else:
                waiter = Tickwheel(cluster.url, namespace=namespace)
            sleeping = threads.submit(waiter.queue("work").dequeue, wait=timedelta(seconds=100))
            eventually(lambda: listeners(cluster, namespace), "it listens")
            try:
                yield tickwheel, sleeping
            finally:
                waiter.close()
    finally:
        loop.close()


def listeners(cluster: RedisCluster, namespace: str) -> int:
    """How many listen to the shard's channel, at the server that has it."""
    try:
        owner = cluster.primary_of(hash_slot(SHARD))
        return int(owner.call("PUBSUB", "SHARDNUMSUB", queue_key(namespace, SHARD, "work", "wake"))[1])
    except (RuntimeError, redis.RedisError):
        return 0


def is_woken(cluster: RedisCluster, tickwheel: Tickwheel, sleeping: Future[list[Message]]) -> bool:
    eventually(lambda: listeners(cluster, tickwheel._context.namespace), "it listens again")
    tickwheel.queue("work").enqueue(id=ID)
    return [message.id for message in sleeping.result(20)] == [ID]


@CLIENTS
def test_a_waiting_dequeue_is_woken_after_the_slot_has_moved_key_by_key(
    redis_cluster: RedisCluster, asyncio: bool
) -> None:
    with asleep(redis_cluster, asyncio) as (tickwheel, sleeping):
        tickwheel.queue("work").enqueue(id="elsewhere", delay=timedelta(hours=1))
        home = redis_cluster.primary_of(hash_slot(SHARD))
        target = next(node for node in map(redis_cluster.primary_of, (0, 16_000)) if node.port != home.port)
        SlotMigration(redis_cluster, hash_slot(SHARD), target).run()
        try:
            assert is_woken(redis_cluster, tickwheel, sleeping)
        finally:
            SlotMigration(redis_cluster, hash_slot(SHARD), home).run()


@CLIENTS
def test_a_waiting_dequeue_is_woken_after_the_slot_has_moved_in_one_step(
    redis_cluster: RedisCluster, asyncio: bool
) -> None:
    with asleep(redis_cluster, asyncio) as (tickwheel, sleeping):
        slot = hash_slot(SHARD)
        home = redis_cluster.primary_of(slot)
        target = next(node for node in map(redis_cluster.primary_of, (0, 16_000)) if node.port != home.port)
        redis_cluster.migrate(slot, slot, target)
        try:
            assert is_woken(redis_cluster, tickwheel, sleeping)
        finally:
            redis_cluster.migrate(slot, slot, home)


@CLIENTS
def test_a_waiting_dequeue_is_woken_after_the_primary_was_killed(cluster: RedisCluster, asyncio: bool) -> None:
    with asleep(cluster, asyncio) as (tickwheel, sleeping):
        cluster.primary_of(hash_slot(SHARD)).kill()
        assert is_woken(cluster, tickwheel, sleeping)
