"""On a cluster, a waiting dequeue is woken by the server that has the shard, also after the shard has moved."""

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
    """Disable the check of each queue every second: only messages and reconnects wake a waiting dequeue."""
    monkeypatch.setattr(WaitList, "begin_sweep", lambda _: None)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RedisCluster]:
    """A separate cluster for a test that breaks it."""
    with RedisCluster(tmp_path / "cluster") as started:
        yield started


@contextmanager
def waiting_dequeue(cluster: RedisCluster, asyncio: bool) -> Iterator[tuple[Tickwheel, Future[list[Message]]]]:
    """Run a dequeue of another client that has checked the queue and waits."""
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
            waiting = threads.submit(waiter.queue("work").dequeue, wait=timedelta(seconds=100))
            eventually(lambda: subscribers(cluster, namespace), "the client is subscribed")
            try:
                yield tickwheel, waiting
            finally:
                waiter.close()
    finally:
        loop.close()


def subscribers(cluster: RedisCluster, namespace: str) -> int:
    """Return the number of subscribers to the shard's channel at the server that has the shard."""
    try:
        owner = cluster.primary_of(hash_slot(SHARD))
        return int(owner.call("PUBSUB", "SHARDNUMSUB", queue_key(namespace, SHARD, "work", "wake"))[1])
    except (RuntimeError, redis.RedisError):
        return 0


def is_woken(cluster: RedisCluster, tickwheel: Tickwheel, waiting: Future[list[Message]]) -> bool:
    eventually(lambda: subscribers(cluster, tickwheel._context.namespace), "the client is subscribed again")
    tickwheel.queue("work").enqueue(id=ID)
    return [message.id for message in waiting.result(20)] == [ID]


@CLIENTS
def test_a_waiting_dequeue_is_woken_after_the_slot_has_moved_key_by_key(
    redis_cluster: RedisCluster, asyncio: bool
) -> None:
    with waiting_dequeue(redis_cluster, asyncio) as (tickwheel, waiting):
        tickwheel.queue("work").enqueue(id="not due", delay=timedelta(hours=1))
        source = redis_cluster.primary_of(hash_slot(SHARD))
        target = next(node for node in map(redis_cluster.primary_of, (0, 16_000)) if node.port != source.port)
        SlotMigration(redis_cluster, hash_slot(SHARD), target).run()
        try:
            assert is_woken(redis_cluster, tickwheel, waiting)
        finally:
            SlotMigration(redis_cluster, hash_slot(SHARD), source).run()


@CLIENTS
def test_a_waiting_dequeue_is_woken_after_the_slot_has_moved_in_one_step(
    redis_cluster: RedisCluster, asyncio: bool
) -> None:
    with waiting_dequeue(redis_cluster, asyncio) as (tickwheel, waiting):
        slot = hash_slot(SHARD)
        source = redis_cluster.primary_of(slot)
        target = next(node for node in map(redis_cluster.primary_of, (0, 16_000)) if node.port != source.port)
        redis_cluster.migrate(slot, slot, target)
        try:
            assert is_woken(redis_cluster, tickwheel, waiting)
        finally:
            redis_cluster.migrate(slot, slot, source)


@CLIENTS
def test_a_waiting_dequeue_is_woken_after_the_primary_was_killed(cluster: RedisCluster, asyncio: bool) -> None:
    with waiting_dequeue(cluster, asyncio) as (tickwheel, waiting):
        cluster.primary_of(hash_slot(SHARD)).kill()
        assert is_woken(cluster, tickwheel, waiting)
