"""Faults of who elects: event processes that are killed, paused, cut off from ZooKeeper, and ZooKeeper itself."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

from tests.fault.harness.elections import LockFiles, ZooKeeperElection
from tests.fault.harness.plan import Fault
from tests.fault.harness.system_under_test import SystemUnderTest, refused_calls


@contextmanager
def kill_driver(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """The one that drives, by SIGKILL."""
    kept, fences = system.leading(fault.whom), system.fences_now()
    kept.kill(1.0)
    yield lambda: "another claimed" if system.fences_now() != fences else ""


@contextmanager
def stop_driver(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """The one that drives, by SIGTERM."""
    kept, fences = system.leading(fault.whom), system.fences_now()
    process = kept.process
    kept.stop()
    yield lambda: "another claimed, and it ended" if "ended" in process.log and system.fences_now() != fences else ""


@contextmanager
def pause_driver(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """The one that drives sleeps past its session; under lock files all of its host do, and another host takes over."""
    fences = system.fences_now()
    if isinstance(system.election, LockFiles):
        for kept in system.drivers:
            kept.process.pause()
        system.election.move()
        paused = [kept.replace() for kept in system.drivers]
    else:
        process = system.leading(fault.whom).process
        process.pause()
        paused = [process]
    one_host = isinstance(system.election, LockFiles)

    def mark() -> str:
        if system.fences_now() == fences or (one_host and any(process.is_running for process in paused)):
            return ""
        return f"deposed, {_fenced(system)}"

    yield mark
    for process in paused:
        process.resume()


@contextmanager
def cut_off_from_zookeeper(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """The one that drives loses its session, and still reaches the server."""
    kept, fences = system.leading(fault.whom), system.fences_now()
    links = cast(ZooKeeperElection, system.election).links(kept.name)
    for link in links:
        link.stall()
    yield lambda: f"another claimed, {_fenced(system)}" if system.fences_now() != fences else ""
    for link in links:
        link.go_on()
        link.cut()


@contextmanager
def kill_zookeeper(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """One server of the quorum."""
    servers = cast(ZooKeeperElection, system.election).zookeeper.servers
    server = servers[fault.whom % len(servers)]
    before = server.pid
    server.kill()
    yield lambda: f"{server.name} was restarted" if server.pid != before else ""
    server.start()


@contextmanager
def lose_quorum(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """All servers but one: nobody can be elected, and who drives goes on."""
    zookeeper = cast(ZooKeeperElection, system.election).zookeeper
    lost = zookeeper.servers[1:]
    for server in lost:
        server.kill()
    fences, stayed = system.fences_now(), [False]
    yield lambda: "who drove went on" if stayed[0] else ""
    stayed[0] = system.fences_now() == fences
    for server in lost:
        server.launch()
    zookeeper.wait_until_all_ready()


@contextmanager
def roll_zookeeper(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Each server of the quorum is restarted, once the one before serves again."""
    servers = cast(ZooKeeperElection, system.election).zookeeper.servers
    before = [server.pid for server in servers]

    def mark() -> str:
        return "" if set(before) & {server.pid for server in servers} else "each was restarted"

    yield mark
    for server in servers:
        server.stop()
        server.start()


def _fenced(system: SystemUnderTest) -> str:
    """What the server refused to those who had been deposed."""
    with system.place.client() as client:
        return f"{refused_calls(client, 'FENCED')} calls refused as fenced"
