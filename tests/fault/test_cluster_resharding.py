"""Slots of a cluster move under load: no call is executed in part, and no message is lost or completed twice."""

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
    """Return the number of calls that the server has refused because their keys were being migrated."""
    with node.client() as client:
        errors: dict[str, Any] = client.info("errorstats")
    return sum(errors.get(f"errorstat_{code}", {}).get("count", 0) for code in ("TRYAGAIN", "ASK"))


def has_refused(node: ValkeyServer, count: int) -> bool:
    return refusals(node) > count


def other_primaries(cluster: RedisCluster, node: ValkeyServer) -> list[ValkeyServer]:
    """Return all primaries except ``node``."""
    primaries = {
        cluster.primary_of(hash_slot(shard)).port: cluster.primary_of(hash_slot(shard)) for shard in range(SHARDS)
    }
    return [primary for port, primary in primaries.items() if port != node.port]


@pytest.mark.parametrize(("asyncio", "shards"), [(False, 64), (True, SHARDS)], ids=["threads", "tasks"])
def test_no_call_is_executed_in_part_while_slots_move_key_by_key_and_back(
    redis_cluster: RedisCluster, tmp_path: Path, asyncio: bool, shards: int
) -> None:
    with load(redis_cluster, tmp_path, asyncio=asyncio, shards=shards) as work:
        for shard in range(2):
            primary = redis_cluster.primary_of(hash_slot(shard))
            target = other_primaries(redis_cluster, primary)[0]
            for source, destination in ((primary, target), (target, primary)):
                move = SlotMigration(redis_cluster, hash_slot(shard), destination)
                refused = refusals(source)
                move.begin()
                assert move.move(limit=3) == 3
                eventually(partial(has_refused, source, refused + 5), "calls reach the partly moved slot")
                move.move()
                move.finish()
                work.wait_for_progress()


@pytest.mark.parametrize(("asyncio", "shards"), [(False, 64), (True, SHARDS)], ids=["threads", "tasks"])
def test_no_call_is_executed_in_part_while_slots_move_in_one_step_and_back(
    redis_cluster: RedisCluster, tmp_path: Path, asyncio: bool, shards: int
) -> None:
    with load(redis_cluster, tmp_path, asyncio=asyncio, shards=shards) as work:
        for shard in range(2):
            slot = hash_slot(shard)
            primary = redis_cluster.primary_of(slot)
            target = other_primaries(redis_cluster, primary)[0]
            for destination in (target, primary):
                redis_cluster.migrate(slot, slot, destination)
                work.wait_for_progress()
