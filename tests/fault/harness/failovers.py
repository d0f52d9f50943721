"""Faults of a primary and its replica. Only writes that the replica did not confirm may be lost."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import cast

from services.valkey import ValkeyServer
from tests.fault.flaky_proxy import FlakyProxy
from tests.fault.harness.elections import LeaseElection
from tests.fault.harness.plan import Fault
from tests.fault.harness.replicated_deployment import ReplicatedDeployment
from tests.fault.harness.system_under_test import NAMESPACE, SystemUnderTest
from tickwheel.storage.keys import shard_key

_WRITTEN_S = 5.0


@contextmanager
def fail_over(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Let the replica lag, kill the primary, and promote the replica."""
    place, ahead = cast(ReplicatedDeployment, system.place), [0]
    old = place.server
    place.link.stall()
    yield lambda: f"{ahead[0]} bytes of the old primary are gone" if ahead[0] else ""
    ahead[0] = _ahead(place)
    old.kill()
    place.fail_over()
    place.rejoin(old)


@contextmanager
def split(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Promote the replica while clients still use the old primary; then the old primary rejoins."""
    with _split(system, []) as mark:
        yield mark


@contextmanager
def split_drivers(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Do the same while a driver uses the old primary, too: each primary gets a leader of its own for all shards."""
    place = cast(ReplicatedDeployment, system.place)
    link = cast(LeaseElection, system.election).link(system.leading(fault.whom).name)
    old, led_twice = place.server, list[int]()
    with _split(system, [link]) as mark:
        yield lambda: f"shards {led_twice} had two leaders, {mark()}" if led_twice and mark() else ""
        for shard in range(system.plan.load.shards):
            holders = [server.call("HGET", _clock_key(shard), "holder") for server in (old, place.server)]
            if None not in holders and holders[0] != holders[1]:
                led_twice.append(shard)


@contextmanager
def _split(system: SystemUnderTest, behind: Collection[FlakyProxy]) -> Iterator[Callable[[], str]]:
    """Promote the replica. The clients and the links ``behind`` use the old primary until the end."""
    place, ahead = cast(ReplicatedDeployment, system.place), [0]
    old = place.server
    place.link.stall()
    place.fail_over(behind)
    before = _written(old)
    yield lambda: f"{ahead[0]} bytes written to the old primary are gone" if ahead[0] else ""
    # Clients that wait for an answer now write a little later.
    with suppress(TimeoutError):
        system.until(lambda: _written(old) > before, "clients write to the old primary", _WRITTEN_S)
    ahead[0] = _written(old) - before
    place.rejoin(old, behind)


def _clock_key(shard: int) -> str:
    return shard_key(NAMESPACE, shard, "clock")


def _ahead(place: ReplicatedDeployment) -> int:
    """Return the number of bytes by which the primary is ahead of its replica."""
    [replica] = place.set.replicas
    return _written(place.server) - int(replica.call("INFO", "replication")["slave_repl_offset"])


def _written(primary: ValkeyServer) -> int:
    """Return the replication offset of the primary in bytes."""
    return int(primary.call("INFO", "replication")["master_repl_offset"])
