"""Faults of workers and producers, and of the machine."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from services.process import ServiceError
from tests.fault.harness.plan import Fault
from tests.fault.harness.system_under_test import SystemUnderTest

_RETRY_S = 30.0


@contextmanager
def kill_worker(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Kill a worker with SIGKILL, with its leased messages."""
    worker = system.workers[fault.whom % len(system.workers)]
    before = len(worker.ended)
    worker.kill()
    yield lambda: "it was replaced" if len(worker.ended) > before else ""


@contextmanager
def stop_worker(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Restart a worker like an operator, with SIGTERM."""
    worker = system.workers[fault.whom % len(system.workers)]
    before = len(worker.ended)
    worker.stop()
    yield lambda: "it was replaced" if len(worker.ended) > before else ""


@contextmanager
def pause_worker(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Pause a worker with SIGSTOP for longer than its leases."""
    process = system.workers[fault.whom % len(system.workers)].process
    process.pause()
    system.until(lambda: _stat(process.pid)[0] == "T", "the worker is stopped", _RETRY_S)
    yield lambda: f"{process.name} was stopped"
    with suppress(ServiceError, ProcessLookupError):
        process.resume()


@contextmanager
def kill_producer(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Kill a producer with SIGKILL, without a restart: its last call is never repeated."""
    producer = system.producers[fault.whom % len(system.producers)]
    was_running = producer.is_running
    producer.kill()
    yield lambda: "its last call is open" if was_running else ""


@contextmanager
def burn_cpu(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Run busy programs, twice as many as processors."""
    command = [sys.executable, "-c", "while True: pass"]
    burners = [subprocess.Popen(command) for _ in range(2 * (os.cpu_count() or 1))]
    used: list[float] = []
    yield lambda: f"{used[0]:.1f} s of processor time" if used else ""
    used.append(sum(_cpu_s(burner.pid) for burner in burners))
    for burner in burners:
        burner.send_signal(signal.SIGKILL)
        burner.wait()


def _cpu_s(pid: int) -> float:
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[str]:
    """Return the fields of a process in /proc, from its state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
