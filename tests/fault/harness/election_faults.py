"""Faults of the election: drivers that are killed, stopped, paused or cut off, and ZooKeeper itself."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

from tests.fault.harness.elections import LeaseElection, LockFiles, ZooKeeperElection
from tests.fault.harness.plan import Fault
from tests.fault.harness.system_under_test import SystemUnderTest, refused_calls


@contextmanager
def kill_driver(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Kill a leader with SIGKILL."""
    driver, fences = system.leading(fault.whom), system.fences_now()
    driver.kill(1.0)
    yield lambda: "another process claimed" if system.fences_now() != fences else ""


@contextmanager
def stop_driver(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Stop a leader with SIGTERM."""
    driver, fences = system.leading(fault.whom), system.fences_now()
    process = driver.process
    driver.stop()
    yield (
        lambda: (
            "another process claimed, and the old leader ended"
            if system.election.ended in process.log and system.fences_now() != fences
            else ""
        )
    )


@contextmanager
def kill_program(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Kill a program that drives as a last resort, and its child processes, with SIGKILL, like the end of its host."""
    driver, fences = system.leading(fault.whom), system.fences_now()
    # The child that drives is killed first: it hands its shards over if only its program ends.
    for pid in _children(driver.process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    driver.kill(1.0)
    yield lambda: "another process claimed" if system.fences_now() != fences else ""


@contextmanager
def pause_driver(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Pause a leader for longer than its session; with lock files, pause all processes, and another host takes over."""
    fences = system.fences_now()
    if isinstance(system.election, LockFiles):
        for driver in system.drivers:
            driver.process.pause()
        system.election.move()
        paused = [driver.replace() for driver in system.drivers]
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
    """Cut a leader off from ZooKeeper but not from the server, so that it loses its session."""
    driver, fences = system.leading(fault.whom), system.fences_now()
    links = cast(ZooKeeperElection, system.election).links(driver.name)
    for link in links:
        link.stall()
    yield lambda: f"another process claimed, {_fenced(system)}" if system.fences_now() != fences else ""
    for link in links:
        link.go_on()
        link.cut()


@contextmanager
def cut_off_from_server(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Cut a leader off from the server, and so from an election by lease. The other processes reach the server."""
    driver, fences = system.leading(fault.whom), system.fences_now()
    link = cast(LeaseElection, system.election).link(driver.name)
    link.stall()
    yield lambda: f"another process claimed, {_fenced(system)}" if system.fences_now() != fences else ""
    link.go_on()
    link.cut()


@contextmanager
def kill_zookeeper(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Kill and restart one server of the quorum."""
    servers = cast(ZooKeeperElection, system.election).zookeeper.servers
    server = servers[fault.whom % len(servers)]
    before = server.pid
    server.kill()
    yield lambda: f"{server.name} was restarted" if server.pid != before else ""
    server.start()


@contextmanager
def lose_quorum(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Kill all servers but one: no election is possible, and the leaders continue."""
    zookeeper = cast(ZooKeeperElection, system.election).zookeeper
    lost = zookeeper.servers[1:]
    for server in lost:
        server.kill()
    fences, stayed = system.fences_now(), [False]
    yield lambda: "the leaders continued" if stayed[0] else ""
    stayed[0] = system.fences_now() == fences
    for server in lost:
        server.launch()
    zookeeper.wait_until_all_ready()


@contextmanager
def roll_zookeeper(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Restart the servers of the quorum in turn, each when the previous server is ready."""
    servers = cast(ZooKeeperElection, system.election).zookeeper.servers
    before = [server.pid for server in servers]

    def mark() -> str:
        return "" if set(before) & {server.pid for server in servers} else "each server was restarted"

    yield mark
    for server in servers:
        server.stop()
        server.start()


def _children(pid: int) -> list[int]:
    """Return the ids of the child processes of a process."""
    found: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        # The thread may have ended meanwhile.
        with suppress(OSError):
            found += map(int, file.read_text().split())
    return found


def _fenced(system: SystemUnderTest) -> str:
    """Return the number of calls that the server rejected as fenced, as a text."""
    with system.place.client() as client:
        return f"{refused_calls(client, 'FENCED')} calls rejected as fenced"
