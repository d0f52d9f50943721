"""Faults of a primary and its replica: what was not confirmed by the replica is gone, and nothing else."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

from tests.fault.harness.plan import Fault
from tests.fault.harness.replicated import Replicated
from tests.fault.harness.world import World


@contextmanager
def fail_over(world: World, fault: Fault) -> Iterator[Callable[[], str]]:
    """The replica lags, then the primary is killed and the replica takes its place."""
    place, ahead = cast(Replicated, world.place), [0]
    old = place.server
    place.link.stall()
    yield lambda: f"{ahead[0]} bytes of the old primary are gone" if ahead[0] else ""
    ahead[0] = _ahead(place)
    old.kill()
    place.fail_over()
    place.rejoin(old)


@contextmanager
def split(world: World, fault: Fault) -> Iterator[Callable[[], str]]:
    """Clients go on with the old primary while event processes drive the new one; then the old one rejoins."""
    place, ahead = cast(Replicated, world.place), [0]
    old = place.server
    place.link.stall()
    place.fail_over()
    before = _offset(old.call("INFO", "replication"))
    yield lambda: f"{ahead[0]} bytes written to the old primary are gone" if ahead[0] else ""
    ahead[0] = _offset(old.call("INFO", "replication")) - before
    place.rejoin(old)


def _ahead(place: Replicated) -> int:
    """By how many bytes the primary is ahead of its replica."""
    [replica] = place.set.replicas
    primary = _offset(place.server.call("INFO", "replication"))
    return primary - int(replica.call("INFO", "replication")["slave_repl_offset"])


def _offset(info: dict[str, str]) -> int:
    return int(info["master_repl_offset"])
