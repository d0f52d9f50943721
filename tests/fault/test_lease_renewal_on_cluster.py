"""Leases of messages on several servers: if one server is unreachable, the leases on the others are still renewed."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from math import inf
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
from tickwheel.worker.orphan_settler import Interruption, settle_after_exit
from tickwheel.worker.shared_state import SharedState
from tickwheel.worker.stats import Stats

pytestmark = pytest.mark.fault

SHARDS, MESSAGES = 6, 60
QUEUES, LEASE = 6, timedelta(seconds=4)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RedisCluster]:
    """A cluster without replicas, so that no server replaces a frozen primary."""
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
        messages = queue.dequeue(MESSAGES)
        assert len(messages) == MESSAGES
        frozen = cluster.primary_of(hash_slot(0))
        # No server has loaded the script yet.
        with frozen.paused(), pytest.raises(Unavailable):
            queue.extend_many(messages, timedelta(hours=1))
        cluster.wait_until_settled()
        soon = datetime.now(UTC) + timedelta(minutes=30)
        for message in messages:
            if _server(cluster, message) is not frozen:
                until = queue.get(message.id).until
                assert until is not None
                assert until > soon


def test_a_worker_renews_leases_of_all_its_queues_on_the_servers_that_are_up(cluster: RedisCluster) -> None:
    """Each call to the frozen server takes a second, and there are more queues than a lease has seconds."""
    namespace, stats = f"renewer-{os.urandom(4).hex()}", Stats()
    state, (reading, writing) = SharedState(QUEUES), os.pipe()
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
        renewer = LeaseRenewer(state, reading, lambda report: renewing, stats, calls)
        reports = ReportWriter(writing, lambda: None)
        reports.send(Ready({}, [batch[0].queue for batch in batches], []))
        for n, batch in enumerate(batches):
            state.batches[n].begin(1, [inf] * len(batch))
            reports.send(BatchTaken(n, 1, list(map(_held, batch))))
        eventually(
            lambda: stats.renewals == QUEUES * 10, "each lease is renewed once, so the renewer has opened each queue"
        )
        # The primary of the metadata shard, which has the configurations of the queues.
        frozen, began = cluster.primary_of(hash_slot(0)), datetime.now(UTC)
        reachable = [message for batch in batches for message in batch if _server(cluster, message) is not frozen]

        def lease_ends() -> list[datetime]:
            times = [tickwheel.queue(message.queue).get(message.id).until for message in reachable]
            until = [time for time in times if time is not None]
            assert len(until) == len(reachable)
            assert min(until) > datetime.now(UTC)
            return until

        with frozen.paused():
            eventually(lambda: min(lease_ends()) > began + 4 * LEASE, "the leases were renewed three times", 30)
        cluster.wait_until_settled()
        os.close(writing)
        renewer.stop()
        settle_after_exit(state, renewer.batches, renewer.open_client, lambda batch, message: Interruption("killed"))
        renewer.close()
        state.close()
        # Tasks that were not started are released.
        assert {tickwheel.queue(message.queue).get(message.id).state for message in reachable} == {"pending"}
        assert stats.lost_leases == 0


def _server(cluster: RedisCluster, message: Message) -> ValkeyServer:
    return cluster.primary_of(hash_slot(shard_of(message.queue, message.id.encode(), SHARDS)))


def _held(message: Message) -> MessageLease:
    name = message.queue, message._queue_number, message.id, message.exclusive_value
    return MessageLease(*name, message.token, message.attempt, LEASE.total_seconds())
