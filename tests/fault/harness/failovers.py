"""Faults of a primary and its replica: what was not confirmed by the replica is gone, and nothing else."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import cast

from services.valkey import ValkeyServer
from tests.fault.harness.plan import Fault
from tests.fault.harness.replicated import ReplicatedDeployment
from tests.fault.harness.system_under_test import SystemUnderTest

_WRITTEN_S = 5.0


@contextmanager
def fail_over(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """The replica lags, then the primary is killed and the replica takes its place."""
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
    """Clients go on with the old primary while event processes drive the new one; then the old one rejoins."""
    place, ahead = cast(ReplicatedDeployment, system.place), [0]
    old = place.server
    place.link.stall()
    place.fail_over()
    before = _written(old)
    yield lambda: f"{ahead[0]} bytes written to the old primary are gone" if ahead[0] else ""
    # Clients that wait for an answer at that moment write a little later.
    with suppress(TimeoutError):
        system.until(lambda: _written(old) > before, "the old primary is written to", _WRITTEN_S)
    ahead[0] = _written(old) - before
    place.rejoin(old)


def _ahead(place: ReplicatedDeployment) -> int:
    """By how many bytes the primary is ahead of its replica."""
    [replica] = place.set.replicas
    return _written(place.server) - int(replica.call("INFO", "replication")["slave_repl_offset"])


def _written(primary: ValkeyServer) -> int:
    """Bytes that this primary has written for replicas."""
    return int(primary.call("INFO", "replication")["master_repl_offset"])
