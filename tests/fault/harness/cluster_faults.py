"""Faults of a cluster: slots that move under load, and primaries that are killed and failed over."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

from services.slot_migration import SlotMigration
from tests.fault.harness.clustered import ClusterDeployment
from tests.fault.harness.plan import Fault
from tests.fault.harness.system_under_test import NAMESPACE, SystemUnderTest


@contextmanager
def move_slot(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """A shard's slot moves, whole or key by key; then it stays half moved for as long as the fault lasts."""
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
    # A call that makes keys anew while the last ones go leaves some behind: until none is left.
    while move.move():
        time.sleep(0)
    move.finish()


@contextmanager
def kill_primary(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """The primary of a shard, by SIGKILL: the cluster makes its replica the primary, and it comes back as a replica."""
    place = cast(ClusterDeployment, system.place)
    slot = place.slot(NAMESPACE, fault.whom % system.plan.load.shards)
    primary = place.cluster.primary_of(slot)
    primary.kill()
    yield lambda: f"{primary.name} failed over" if place.cluster.primary_of(slot) is not primary else ""
    primary.start()
    place.cluster.wait_until_settled()
