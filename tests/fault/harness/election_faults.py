"""Faults of who elects: event processes that are killed, paused, cut off from ZooKeeper, and ZooKeeper itself."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

from tests.fault.harness.elections import LockFiles, ZooKeeperElection
from tests.fault.harness.plan import Fault
from tests.fault.harness.world import World, log, refused_calls


@contextmanager
def kill_driver(world: World, fault: Fault) -> Iterator[Callable[[], str]]:
    """The one that drives, by SIGKILL."""
    kept, fences = world.leading(fault.whom), world.fences_now()
    kept.kill(1.0)
    yield lambda: "another claimed" if world.fences_now() != fences else ""


@contextmanager
def stop_driver(world: World, fault: Fault) -> Iterator[Callable[[], str]]:
    """The one that drives, by SIGTERM."""
    kept, fences = world.leading(fault.whom), world.fences_now()
    process = kept.process
    kept.stop()
    yield lambda: "another claimed, and it ended" if "ended" in log(process) and world.fences_now() != fences else ""


@contextmanager
def pause_driver(world: World, fault: Fault) -> Iterator[Callable[[], str]]:
    """The one that drives sleeps past its session; under lock files all of its host do, and another host takes over."""
    fences = world.fences_now()
    if isinstance(world.election, LockFiles):
        for kept in world.drivers:
            kept.process.pause()
        world.election.move()
        paused = [kept.replace() for kept in world.drivers]
    else:
        process = world.leading(fault.whom).process
        process.pause()
        paused = [process]
    one_host = isinstance(world.election, LockFiles)

    def mark() -> str:
        if world.fences_now() == fences or (one_host and any(process.is_running for process in paused)):
            return ""
        return f"deposed, {_fenced(world)}"

    yield mark
    for process in paused:
        process.resume()


@contextmanager
def cut_off_from_zookeeper(world: World, fault: Fault) -> Iterator[Callable[[], str]]:
    """The one that drives loses its session, and still reaches the server."""
    kept, fences = world.leading(fault.whom), world.fences_now()
    links = cast(ZooKeeperElection, world.election).links(kept.name)
    for link in links:
        link.stall()
    yield lambda: f"another claimed, {_fenced(world)}" if world.fences_now() != fences else ""
    for link in links:
        link.go_on()
        link.cut()


@contextmanager
def kill_zookeeper(world: World, fault: Fault) -> Iterator[Callable[[], str]]:
    """One server of the quorum."""
    servers = cast(ZooKeeperElection, world.election).zookeeper.servers
    server = servers[fault.whom % len(servers)]
    before = server.pid
    server.kill()
    yield lambda: f"{server.name} was restarted" if server.pid != before else ""
    server.start()


@contextmanager
def lose_quorum(world: World, fault: Fault) -> Iterator[Callable[[], str]]:
    """All servers but one: nobody can be elected, and who drives goes on."""
    zookeeper = cast(ZooKeeperElection, world.election).zookeeper
    lost = zookeeper.servers[1:]
    for server in lost:
        server.kill()
    fences, stayed = world.fences_now(), [False]
    yield lambda: "who drove went on" if stayed[0] else ""
    stayed[0] = world.fences_now() == fences
    for server in lost:
        server.launch()
    zookeeper.wait_until_all_ready()


@contextmanager
def roll_zookeeper(world: World, fault: Fault) -> Iterator[Callable[[], str]]:
    """Each server of the quorum is restarted, once the one before serves again."""
    servers = cast(ZooKeeperElection, world.election).zookeeper.servers
    before = [server.pid for server in servers]

    def mark() -> str:
        return "" if set(before) & {server.pid for server in servers} else "each was restarted"

    yield mark
    for server in servers:
        server.stop()
        server.start()


def _fenced(world: World) -> str:
    """What the server refused to those who had been deposed."""
    with world.place.client() as client:
        return f"{refused_calls(client, 'FENCED')} calls refused as fenced"
