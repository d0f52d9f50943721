"""Slots of a cluster move while producers and workers go on: no call is half done, nothing is lost or done twice."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from services.redis_cluster import RedisCluster
from services.slot_migration import SlotMigration
from services.valkey import ValkeyServer
from tests.fault.cluster_load import SHARDS, load
from tests.support.wait_until import eventually
from tickwheel.redis.topology import hash_slot

pytestmark = pytest.mark.fault


def refusals(node: ValkeyServer) -> int:
    """How many calls the server has refused, because keys of theirs were on their way."""
    with node.client() as client:
        told: dict[str, Any] = client.info("errorstats")
    return sum(told.get(f"errorstat_{code}", {}).get("count", 0) for code in ("TRYAGAIN", "ASK"))


def has_refused(node: ValkeyServer, most: int) -> bool:
    return refusals(node) > most


def others(cluster: RedisCluster, node: ValkeyServer) -> list[ValkeyServer]:
    """The primaries but one."""
    primaries = {
        cluster.primary_of(hash_slot(shard)).port: cluster.primary_of(hash_slot(shard)) for shard in range(SHARDS)
    }
    return [primary for port, primary in primaries.items() if port != node.port]


@pytest.mark.parametrize(("asyncio", "shards"), [(False, 64), (True, SHARDS)], ids=["threads", "tasks"])
def test_slots_that_move_key_by_key_and_back_leave_no_call_half_done(
    redis_cluster: RedisCluster, tmp_path: Path, asyncio: bool, shards: int
) -> None:
    with load(redis_cluster, tmp_path, asyncio=asyncio, shards=shards) as work:
        for shard in range(2):
            home = redis_cluster.primary_of(hash_slot(shard))
            away = others(redis_cluster, home)[0]
            for source, target in ((home, away), (away, home)):
                move = SlotMigration(redis_cluster, hash_slot(shard), target)
                refused = refusals(source)
                move.begin()
                assert move.move(limit=3) == 3
                eventually(partial(has_refused, source, refused + 5), "calls meet the slot half moved")
                move.move()
                move.finish()
                work.goes_on()


@pytest.mark.parametrize(("asyncio", "shards"), [(False, 64), (True, SHARDS)], ids=["threads", "tasks"])
def test_slots_that_move_whole_and_back_leave_no_call_half_done(
    redis_cluster: RedisCluster, tmp_path: Path, asyncio: bool, shards: int
) -> None:
    with load(redis_cluster, tmp_path, asyncio=asyncio, shards=shards) as work:
        for shard in range(2):
            slot = hash_slot(shard)
            home = redis_cluster.primary_of(slot)
            away = others(redis_cluster, home)[0]
            for target in (away, home):
                redis_cluster.migrate(slot, slot, target)
                work.goes_on()
