"""Faults of a primary and its replica. Only writes that the replica did not confirm may be lost."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import cast

from services.valkey import ValkeyServer
from tests.fault.harness.plan import Fault
from tests.fault.harness.replicated_deployment import ReplicatedDeployment
from tests.fault.harness.system_under_test import SystemUnderTest

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
    place, ahead = cast(ReplicatedDeployment, system.place), [0]
    old = place.server
    place.link.stall()
    place.fail_over()
    before = _written(old)
    yield lambda: f"{ahead[0]} bytes written to the old primary are gone" if ahead[0] else ""
    # Clients that wait for an answer now write a little later.
    with suppress(TimeoutError):
        system.until(lambda: _written(old) > before, "clients write to the old primary", _WRITTEN_S)
    ahead[0] = _written(old) - before
    place.rejoin(old)


def _ahead(place: ReplicatedDeployment) -> int:
    """Return the number of bytes by which the primary is ahead of its replica."""
    [replica] = place.set.replicas
    return _written(place.server) - int(replica.call("INFO", "replication")["slave_repl_offset"])


def _written(primary: ValkeyServer) -> int:
    """Return the replication offset of the primary in bytes."""
    return int(primary.call("INFO", "replication")["master_repl_offset"])
