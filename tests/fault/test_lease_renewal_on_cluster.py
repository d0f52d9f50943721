"""Leases of messages on several servers, of which one is away: those of the others are renewed all the same."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from services.redis_cluster import RedisCluster
from services.valkey import ValkeyServer
from tests.support.wait_until import eventually
from tickwheel import Message, NewMessage, Tickwheel, Unavailable
from tickwheel.redis.topology import hash_slot
from tickwheel.storage.sharding import shard_of
from tickwheel.worker.ipc import BatchTaken, MessageLease, Ready, ReportWriter
from tickwheel.worker.lease_renewer import LeaseRenewer
from tickwheel.worker.orphan_settler import settle_after_exit
from tickwheel.worker.shared_state import SharedState
from tickwheel.worker.stats import Stats

pytestmark = pytest.mark.fault

SHARDS, MESSAGES = 6, 60
QUEUES, LEASE = 6, timedelta(seconds=4)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RedisCluster]:
    """Without replicas, so that nobody stands in."""
    settings = {"cluster-require-full-coverage": "no"}
    with RedisCluster(tmp_path / "cluster", replicas=0, settings=settings) as started:
        yield started


def test_leases_are_extended_on_the_shards_whose_server_is_up(cluster: RedisCluster) -> None:
    namespace = f"leases-{os.urandom(4).hex()}"
    with Tickwheel(
        cluster.url, namespace=namespace, shards=SHARDS, timeout=timedelta(seconds=3), drive=False
    ) as tickwheel:
        queue = tickwheel.create_queue("work", lease=timedelta(minutes=5))
        queue.enqueue_many(NewMessage(id=f"m{n}") for n in range(MESSAGES))
        held = queue.dequeue(MESSAGES)
        assert len(held) == MESSAGES
        away = cluster.primary_of(hash_slot(0))
        # No server has the script yet.
        with away.paused(), pytest.raises(Unavailable):
            queue.extend_many(held, timedelta(hours=1))
        cluster.wait_until_settled()
        soon = datetime.now(UTC) + timedelta(minutes=30)
        for message in held:
            if _server(cluster, message) is not away:
                until = queue.get(message.id).until
                assert until is not None
                assert until > soon


def test_a_worker_renews_leases_of_all_its_queues_on_the_servers_that_are_up(cluster: RedisCluster) -> None:
    """The server that is away keeps each call waiting for a second, and there are more queues than a lease has."""
    namespace, stats = f"keeper-{os.urandom(4).hex()}", Stats()
    board, (reading, writing) = SharedState(QUEUES), os.pipe()
    with (
        Tickwheel(cluster.url, namespace=namespace, shards=SHARDS, drive=False) as tickwheel,
        Tickwheel(cluster.url, namespace=namespace, timeout=timedelta(seconds=1), drive=False) as renewing,
        ThreadPoolExecutor(QUEUES) as calls,
    ):
        batches = []
        for n in range(QUEUES):
            queue = tickwheel.create_queue(f"work-{n}", lease=LEASE)
            queue.enqueue_many(NewMessage(id=f"m{n}") for n in range(10))
            batches.append(queue.dequeue(10))
        keeper = LeaseRenewer(board, reading, lambda note: renewing, stats, calls)
        notes = ReportWriter(writing)
        notes.send(Ready({}, [batch[0].queue for batch in batches], []))
        for n, batch in enumerate(batches):
            board.batches[n].begin(1, len(batch))
            notes.send(BatchTaken(n, 1, list(map(_held, batch))))
        eventually(lambda: stats.renewals == QUEUES * 10, "all are renewed once, and so their queues are known")
        # That of the queues' configurations.
        away, began = cluster.primary_of(hash_slot(0)), datetime.now(UTC)
        elsewhere = [message for batch in batches for message in batch if _server(cluster, message) is not away]

        def ends() -> list[datetime]:
            found = [tickwheel.queue(message.queue).get(message.id).until for message in elsewhere]
            until = [each for each in found if each is not None]
            assert len(until) == len(elsewhere)
            assert min(until) > datetime.now(UTC)
            return until

        with away.paused():
            eventually(lambda: min(ends()) > began + 4 * LEASE, "they were renewed three times", 30)
        cluster.wait_until_settled()
        os.close(writing)
        keeper.stop()
        settle_after_exit(board, keeper.batches, keeper.open_client, "it was killed", lambda page, slot: True)
        keeper.close()
        board.close()
        # What had not begun is given back.
        assert {tickwheel.queue(message.queue).get(message.id).state for message in elsewhere} == {"pending"}
        assert stats.lost_leases == 0


def _server(cluster: RedisCluster, message: Message) -> ValkeyServer:
    return cluster.primary_of(hash_slot(shard_of(message.queue, message.id.encode(), SHARDS)))


def _held(message: Message) -> MessageLease:
    name = message.queue, message._queue_number, message.id, message.exclusive_value
    return MessageLease(*name, message.token, message.attempt, LEASE.total_seconds())
