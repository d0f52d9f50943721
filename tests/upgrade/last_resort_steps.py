"""The steps of a rolling upgrade in which workers and services may drive as a last resort, while all processes run."""

import random
from contextlib import suppress
from pathlib import Path

from tests.support.wait_until import eventually
from tests.upgrade.lease_steps import kinds
from tests.upgrade.mixed_deployment import PRESENT, Component, MixedDeployment, wait_for_drivers
from tests.upgrade.progress import has_progressed
from tickwheel import Tickwheel
from tickwheel.operations.shard_status import shard_statuses

# The reason why a program does not drive a namespace whose event processes have lock files.
REASON = "have an election of the kind 'lockfile' (`tickwheel events` takes its shards over)"
# The owner of each shard, its epoch and its kind of election.
Claims = list[tuple[str, int, str]]


def read_claims(client: Tickwheel) -> Claims:
    return [(status.owner, status.epoch, status.election) for status in client._run(shard_statuses(client._context))]


def upgrade_programs(deployment: MixedDeployment, client: Tickwheel, chance: random.Random) -> None:
    """Replace the services and workers, while event processes of the earlier version have lock files.

    No child of a program claims a shard.
    """
    before = read_claims(client)
    programs = [*deployment.services, *deployment.workers]
    chance.shuffle(programs)
    for component in programs:
        component.replace(PRESENT)
        eventually(has_progressed(deployment), f"messages are finished after {component.name} was replaced", 60, 0.02)
    for component in deployment.drivers_of_last_resort:
        wait_until_refused(component)
    assert read_claims(client) == before


def restart_event_processes(deployment: MixedDeployment, client: Tickwheel) -> None:
    """End all event processes, which have lock files, and start them again in the same version.

    Meanwhile, programs start that would drive. They leave the shards to the event processes.
    """
    for component in deployment.event_processes:
        component.stop()
    # When the leader of a shard ended, another event process claimed the shard.
    before = read_claims(client)
    for component in deployment.drivers_of_last_resort:
        component.replace(PRESENT)
        wait_until_refused(component)
    assert read_claims(client) == before
    for component in deployment.event_processes:
        component.start(component.site)
    wait_for_drivers(deployment.event_processes, client)
    eventually(has_progressed(deployment), "messages are finished after the event processes have started", 60, 0.02)
    assert kinds(client) == {"lockfile"}


def leave_shards_to_programs(deployment: MixedDeployment, client: Tickwheel, chance: random.Random) -> None:
    """End all event processes, which elect leaders by lease: workers and services drive. Then start an event process.

    The programs are restarted first, because they check only every few minutes whether the election has changed.
    """
    for component in deployment.drivers_of_last_resort:
        component.replace(PRESENT)
    assert wait_for_drivers(deployment.event_processes, client) == {PRESENT}
    for component in chance.sample(deployment.event_processes, 2):
        component.stop()
    eventually(lambda: are_driven_by_children(deployment, client), "children of the programs drive", 120, 0.02)
    eventually(has_progressed(deployment), "messages are finished without an event process", 60, 0.02)
    first, second = deployment.event_processes
    first.start(PRESENT)
    assert wait_for_drivers([first], client) == {PRESENT}
    second.start(PRESENT)
    eventually(has_progressed(deployment), "messages are finished with event processes again", 60, 0.02)
    assert kinds(client) == {"lease"}


def are_driven_by_children(deployment: MixedDeployment, client: Tickwheel) -> bool:
    """Return whether child processes of workers and services have claimed all shards."""
    ids = {owner.rpartition(":")[2] for owner, _, _ in read_claims(client)}
    return ids <= {child for component in deployment.drivers_of_last_resort for child in children(component)}


def children(component: Component) -> list[str]:
    """Return the process ids of the children of all threads of a component."""
    found: list[str] = []
    for file in Path(f"/proc/{component.process.pid}/task").glob("*/children"):
        # The thread may have ended meanwhile.
        with suppress(OSError):
            found += file.read_text().split()
    return found


def wait_until_refused(component: Component) -> None:
    """Wait until the program has logged why it does not drive."""
    eventually(lambda: REASON in component.process.log, f"{component.name} logs why it does not drive", 60, 0.02)
