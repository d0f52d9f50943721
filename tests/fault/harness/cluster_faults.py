"""Faults of a cluster: moves of slots under load, and kills of primaries with their failovers."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

from services.slot_migration import SlotMigration
from tests.fault.harness.cluster_deployment import ClusterDeployment
from tests.fault.harness.plan import Fault
from tests.fault.harness.system_under_test import NAMESPACE, SystemUnderTest


@contextmanager
def move_slot(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Move a shard's slot, whole or key by key; key by key, the slot stays half moved until the fault ends."""
    place = cast(ClusterDeployment, system.place)
    slot = place.slot(NAMESPACE, fault.whom % system.plan.load.shards)
    source = place.cluster.primary_of(slot)
    target = place.another_primary(source)
    if fault.amount:
        place.cluster.migrate(slot, slot, target)
        yield lambda: f"slot {slot} moved whole"
        return
    move = SlotMigration(place.cluster, slot, target)
    move.begin()
    keys = move.move(3)
    yield lambda: f"slot {slot} moved, {keys} keys ahead of the others"
    # Repeat until no key is left, because calls can create keys again during the move.
    while move.move():
        time.sleep(0)
    move.finish()


@contextmanager
def kill_primary(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Kill the primary of a shard: the cluster promotes its replica, and the old primary restarts as a replica."""
    place = cast(ClusterDeployment, system.place)
    slot = place.slot(NAMESPACE, fault.whom % system.plan.load.shards)
    primary = place.cluster.primary_of(slot)
    primary.kill()
    yield lambda: f"{primary.name} failed over" if place.cluster.primary_of(slot) is not primary else ""
    primary.start()
    place.cluster.wait_until_settled()
