"""Faults of a single server: its process, its memory, its disk and its clock."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import redis

from tests.fault.harness.deployment import drift_clock, set_clock, step_clock
from tests.fault.harness.history import now
from tests.fault.harness.plan import Fault
from tests.fault.harness.system_under_test import SystemUnderTest, refused_calls

_HOUR_S = 3600
_RETRY_S = 30.0
# A thousandth; and what of it must be seen, in ms a second.
DRIFT, _LEAST = 0.001, 0.5
# How fast the wall clock and the monotonic one of a process go.
_PROBE = """
from time import monotonic, perf_counter, sleep, time
def look():
    found = []
    for _ in range(50):
        began, *clocks, ended = perf_counter(), time(), monotonic(), perf_counter()
        found.append((ended - began, began, *clocks))
    return min(found)[1:]
before = look()
sleep(0.5)
passed, *went = (b - a for a, b in zip(before, look()))
print(*(each / passed for each in went))
"""


@contextmanager
def kill_server(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """SIGKILL; it comes back with its data once the fault is over."""
    server = system.place.server
    before = server.pid
    server.kill()
    yield lambda: f"process {server.pid} after {before}" if server.pid != before else ""
    server.start()


@contextmanager
def stop_server(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Restarted as an operator does it."""
    server = system.place.server
    before = server.pid
    server.stop()
    server.start()
    yield lambda: f"process {server.pid} after {before}"


@contextmanager
def pause_server(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """SIGSTOP: connections stay open, and silent."""
    with system.place.client() as client:
        client.ping()
        system.place.server.pause()
        asked = now()
        answered: list[float] = []

        def ask() -> None:
            with suppress(redis.RedisError):
                client.ping()
            answered.append(now() - asked)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        yield lambda: f"silent for {answered[0]:.2f} s" if answered and answered[0] >= min(fault.lasts, 4) else ""
        system.place.server.resume()
        thread.join()


@contextmanager
def limit_memory(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """It has less memory than it uses."""
    with system.place.client() as client:
        refused = 0
        before = refused_calls(client, "OOM")
        client.config_set("maxmemory", int(client.info("memory")["used_memory"]) - 1)
        yield lambda: f"{refused} refused" if refused else ""
        client.config_set("maxmemory", 0)
        refused = refused_calls(client, "OOM") - before


@contextmanager
def fill_disk(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """The server ends when it cannot write what it would have to answer for."""
    server, filler = system.place.server, system.place.disk / "filler"
    # What the server wrote may have filled it before.
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))
    system.until(lambda: not server.is_running or "MISCONF" in server.log, "the server notices", _RETRY_S)
    mark = "the server refused" if server.is_running else "the server ended"
    yield lambda: mark
    filler.unlink(missing_ok=True)
    server.restart()


@contextmanager
def step_hour(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Its clock steps by so many hours, and back to what it was."""
    step = round(fault.amount * _HOUR_S)
    with system.place.client() as client:
        step_clock(system.place.faketime, step)
        shown = client.time()[0] - time.time()
        assert abs(shown - step) < 5, f"the server's clock is {shown:.0f} s ahead, not {step}"
        yield lambda: f"{shown:+.0f} s"
        step_clock(system.place.faketime, 0)
    _accept_where_held(system)


@contextmanager
def step_drivers_clock(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Event processes that start while their host's clock is wrong take the server's for the wrong one."""
    step_clock(system.place.faketime, round(fault.amount * _HOUR_S))
    kept, fences = system.leading(fault.whom), system.fences_now()
    kept.kill()
    yield lambda: f"{fault.amount:+.0f} h, another claimed" if system.fences_now() != fences else ""
    step_clock(system.place.faketime, 0)
    _accept_where_held(system)


@contextmanager
def drift_server(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Its clock goes fast or slow until the run is over: to event processes it is as if theirs went slow or fast."""
    gone: list[float] = []
    with system.place.client() as client:
        # At once it is as if it had gone so since its process began.
        drift_clock(system.place.faketime, _rate(fault))
        before = _ahead_ms(client)
        yield lambda: f"{gone[0]:+.1f} ms in {fault.lasts} s" if gone and abs(gone[0]) >= _LEAST * fault.lasts else ""
        gone.append(_ahead_ms(client) - before)


@contextmanager
def drift_drivers(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """All clocks of the event processes' host go fast or slow until the run is over; one starts under it."""
    set_clock(system.place.rate, str(_rate(fault)))
    kept, fences = system.leading(fault.whom), system.fences_now()
    kept.kill()
    told = subprocess.check_output([sys.executable, "-c", _PROBE], env=os.environ | system.place.driver_environment)
    rates = [float(rate) for rate in told.split()]
    drifts = all(DRIFT / 2 < abs(rate - 1) < DRIFT * 2 for rate in rates)
    yield lambda: f"{rates} times as fast" if drifts and system.fences_now() != fences else ""


def _rate(fault: Fault) -> float:
    return 1 + (DRIFT if fault.whom % 2 else -DRIFT)


def _ahead_ms(client: Any) -> float:
    """How far the server's clock is ahead of this host's, by the fastest of some answers."""
    found: list[tuple[float, float]] = []
    for _ in range(30):
        asked = time.time()
        seconds, microseconds = client.time()
        answered = time.time()
        found.append((answered - asked, seconds + microseconds / 1e6 - (asked + answered) / 2))
    return min(found)[1] * 1e3


def _accept_where_held(system: SystemUnderTest) -> None:
    """An operator's part: a clock that was wrong for so long that it was taken as right is right again."""
    time.sleep(2)
    for kept in system.drivers:
        said = kept.process.log
        gone_on = said.count("promotion resumes")
        if said.count("promotion is held") > gone_on and kept.is_running:
            os.kill(kept.process.pid, signal.SIGUSR1)
