"""Leases of messages on several servers, of which one is away: those of the others are renewed all the same."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from services.redis_cluster import RedisCluster
from tickwheel import NewMessage, Tickwheel, Unavailable
from tickwheel.routing import shard_of
from tickwheel.topology import slot_of

pytestmark = pytest.mark.fault

SHARDS, MESSAGES = 6, 60


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RedisCluster]:
    """Without replicas, so that nobody stands in."""
    settings = {"cluster-require-full-coverage": "no"}
    with RedisCluster(tmp_path / "cluster", replicas=0, settings=settings) as started:
        yield started


def test_leases_are_extended_where_their_server_is_there(cluster: RedisCluster) -> None:
    namespace = f"leases-{os.urandom(4).hex()}"
    with Tickwheel(
        cluster.url, namespace=namespace, shards=SHARDS, timeout=timedelta(seconds=3), drive=False
    ) as tickwheel:
        queue = tickwheel.create_queue("work", lease=timedelta(minutes=5))
        queue.enqueue_many(NewMessage(id=f"m{n}") for n in range(MESSAGES))
        held = queue.dequeue(MESSAGES)
        assert len(held) == MESSAGES
        away = cluster.primary_of(slot_of(0))
        # No server has the script yet.
        with away.paused(), pytest.raises(Unavailable):
            queue.extend_many(held, timedelta(hours=1))
        cluster.wait_until_settled()
        soon = datetime.now(UTC) + timedelta(minutes=30)
        for message in held:
            slot = slot_of(shard_of("work", message.id.encode(), SHARDS))
            if cluster.primary_of(slot) is not away:
                until = queue.get(message.id).until
                assert until is not None
                assert until > soon
