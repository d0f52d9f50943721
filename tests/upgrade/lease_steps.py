"""The step of a rolling upgrade to an election by lease, and the way back, while all other processes run."""

import random

from tests.support.wait_until import eventually
from tests.upgrade.mixed_deployment import PRESENT, Component, MixedDeployment, wait_for_drivers
from tests.upgrade.progress import has_progressed
from tickwheel import Tickwheel
from tickwheel.operations.shard_status import reset_epoch, shard_statuses


def change_to_lease(deployment: MixedDeployment, client: Tickwheel, *, leader_first: bool) -> None:
    """Replace the event processes with lock files one by one by event processes without options, which elect
    leaders by lease.

    The first of the new processes takes the shards over from a process that leads with a lock file, even while that
    process runs. This process then exits, and its log has the reason.
    """
    leader, standby = find_leader(deployment, client)
    first, second = (leader, standby) if leader_first else (standby, leader)
    first.stop()
    # If this was the leader, the standby has its lock now, and leads.
    wait_for_drivers([second], client)
    start_by_lease(deployment, first)
    eventually(has_progressed(deployment), "messages are finished while two kinds of event processes run", 60, 0.02)
    assert wait_for_drivers([first], client) == {PRESENT}
    second.wait_until_it_ends(1)
    assert any("the shard is driven by the election kind lease" in line for line in second.lines), second.lines[-5:]
    start_by_lease(deployment, second)
    eventually(has_progressed(deployment), "messages are finished with an election by lease", 60, 0.02)
    assert kinds(client) == {"lease"}


def change_back(deployment: MixedDeployment, client: Tickwheel, site: str, chance: random.Random) -> None:
    """End all event processes, reset the epochs, and start event processes with a lock file in the version ``site``."""
    for component in chance.sample(deployment.event_processes, 2):
        component.stop()
    for shard in range(client._context.shards):
        assert client._run(reset_epoch(client._context, shard))
    for component in deployment.event_processes:
        component.arguments = (*component.arguments, *deployment.lock)
        component.start(site)
    assert wait_for_drivers(deployment.event_processes, client) == {site}
    eventually(has_progressed(deployment), "messages are finished with lock files again", 60, 0.02)
    assert kinds(client) == {"lockfile"}


def start_by_lease(deployment: MixedDeployment, component: Component) -> None:
    component.arguments = component.arguments[: -len(deployment.lock)]
    component.start(PRESENT)


def find_leader(deployment: MixedDeployment, client: Tickwheel) -> tuple[Component, Component]:
    """Return the event process that leads the first shard, and the other event process."""
    owner = client._run(shard_statuses(client._context))[0].owner
    return tuple(  # type: ignore[return-value]
        sorted(deployment.event_processes, key=lambda component: not owner.endswith(f":{component.process.pid}"))
    )


def kinds(client: Tickwheel) -> set[str]:
    return {status.election for status in client._run(shard_statuses(client._context))}
