"""The time from the kill of a primary of a cluster until calls to its shards succeed again."""

import tempfile
import time
from pathlib import Path

from bench.harness.measurement import Measurement, Scale
from services.redis_cluster import RedisCluster
from tickwheel import NewMessage, Tickwheel
from tickwheel.redis.topology import hash_slot

NODE_TIMEOUT_MS = 2_000
BAR_MS = NODE_TIMEOUT_MS + 3_000
SHARDS = 64


def failover(scale: Scale) -> list[Measurement]:
    """In each run, kill the primary of a different shard, and enqueue to all shards."""
    first_ms: list[float] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        RedisCluster(Path(folder), node_timeout_ms=NODE_TIMEOUT_MS) as cluster,
        Tickwheel(cluster.url, shards=SHARDS, drive=False) as tickwheel,
    ):
        queue = tickwheel.create_queue("jobs")
        for run in range(scale.runs(5)):
            queue.enqueue_many(NewMessage(id=f"before-{run}-{n}") for n in range(10 * SHARDS))
            primary = cluster.primary_of(hash_slot(run * 7 % SHARDS))
            killed = time.monotonic()
            primary.kill()
            # Enough messages for every shard. The call ends when all are enqueued.
            queue.enqueue_many(NewMessage(id=f"after-{run}-{n}") for n in range(10 * SHARDS))
            first_ms.append((time.monotonic() - killed) * 1e3)
            primary.restart()
            cluster.wait_until_settled()
    return [
        Measurement(
            "failover",
            "time from the kill of a primary of a Redis Cluster until one call to all shards has succeeded",
            "ms",
            first_ms,
            BAR_MS,
            value=max(first_ms),
            details={"node_timeout_ms": NODE_TIMEOUT_MS, "shards": SHARDS, "primaries": 3},
        )
    ]
