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

from services.stepped_clock import drift_clock, set_clock, step_clock
from tests.fault.harness.call_log import now
from tests.fault.harness.plan import Fault
from tests.fault.harness.system_under_test import SystemUnderTest, refused_calls

_HOUR_S = 3600
_RETRY_S = 30.0
# The drift in seconds per second, and the minimum measured drift in ms per second.
DRIFT, _DRIFT_MIN = 0.001, 0.5
# Prints the rates of the wall clock and the monotonic clock of a process.
_PROBE = """
from time import monotonic, perf_counter, sleep, time
def read_clocks():
    samples = []
    for _ in range(50):
        began, *clocks, ended = perf_counter(), time(), monotonic(), perf_counter()
        samples.append((ended - began, began, *clocks))
    return min(samples)[1:]
before = read_clocks()
sleep(0.5)
passed, *advances = (b - a for a, b in zip(before, read_clocks()))
print(*(advance / passed for advance in advances))
"""


@contextmanager
def kill_server(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Kill the server with SIGKILL, and restart it with its data at the end of the fault."""
    server = system.place.server
    before = server.pid
    server.kill()
    yield lambda: f"process {server.pid} after {before}" if server.pid != before else ""
    server.start()


@contextmanager
def stop_server(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Restart the server like an operator."""
    server = system.place.server
    before = server.pid
    server.stop()
    server.start()
    yield lambda: f"process {server.pid} after {before}"


@contextmanager
def pause_server(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Pause the server with SIGSTOP: connections stay open, but calls get no answers."""
    with system.place.client() as client:
        client.ping()
        system.place.server.pause()
        began = now()
        answered: list[float] = []

        def ping() -> None:
            with suppress(redis.RedisError):
                client.ping()
            answered.append(now() - began)

        thread = threading.Thread(target=ping, daemon=True)
        thread.start()
        yield lambda: f"no answer for {answered[0]:.2f} s" if answered and answered[0] >= min(fault.lasts, 4) else ""
        system.place.server.resume()
        thread.join()


@contextmanager
def limit_memory(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Limit the server to less memory than it uses."""
    with system.place.client() as client:
        refused = 0
        before = refused_calls(client, "OOM")
        client.config_set("maxmemory", int(client.info("memory")["used_memory"]) - 1)
        yield lambda: f"{refused} calls rejected" if refused else ""
        client.config_set("maxmemory", 0)
        refused = refused_calls(client, "OOM") - before


@contextmanager
def fill_disk(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Fill the disk, so that the server rejects writes or exits, and then restart it."""
    server, filler = system.place.server, system.place.disk / "filler"
    # The writes of the server may already have filled the disk.
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))
    system.until(lambda: not server.is_running or "MISCONF" in server.log, "the server detects the full disk", _RETRY_S)
    mark = "the server rejected writes" if server.is_running else "the server ended"
    yield lambda: mark
    filler.unlink(missing_ok=True)
    server.restart()


@contextmanager
def step_hour(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Step the server's clock by some hours, and back at the end of the fault."""
    step = round(fault.amount * _HOUR_S)
    with system.place.client() as client:
        step_clock(system.place.faketime, step)
        ahead = client.time()[0] - time.time()
        assert abs(ahead - step) < 5, f"the server's clock is {ahead:.0f} s ahead, not {step}"
        yield lambda: f"{ahead:+.0f} s"
        step_clock(system.place.faketime, 0)
    _accept_where_held(system)


@contextmanager
def step_drivers_clock(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Step the clock of the event processes' host, and restart a leader, which then distrusts the server's clock."""
    step_clock(system.place.faketime, round(fault.amount * _HOUR_S))
    driver, fences = system.leading(fault.whom), system.fences_now()
    driver.kill()
    yield lambda: f"{fault.amount:+.0f} h, another process claimed" if system.fences_now() != fences else ""
    step_clock(system.place.faketime, 0)
    _accept_where_held(system)


@contextmanager
def drift_server(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Make the server's clock run fast or slow until the end of the run."""
    drifted: list[float] = []
    with system.place.client() as client:
        # The new rate applies from the start of the process on, so the clock also steps once.
        drift_clock(system.place.faketime, _rate(fault))
        before = _ahead_ms(client)
        yield (
            lambda: (
                f"{drifted[0]:+.1f} ms in {fault.lasts} s"
                if drifted and abs(drifted[0]) >= _DRIFT_MIN * fault.lasts
                else ""
            )
        )
        drifted.append(_ahead_ms(client) - before)


@contextmanager
def drift_drivers(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
    """Make all clocks of the event processes' host run fast or slow until the end of the run, and restart a leader."""
    set_clock(system.place.rate, str(_rate(fault)))
    driver, fences = system.leading(fault.whom), system.fences_now()
    driver.kill()
    output = subprocess.check_output([sys.executable, "-c", _PROBE], env=os.environ | system.place.driver_environment)
    rates = [float(rate) for rate in output.split()]
    drifts = all(DRIFT / 2 < abs(rate - 1) < DRIFT * 2 for rate in rates)
    yield lambda: f"{rates} times as fast" if drifts and system.fences_now() != fences else ""


def _rate(fault: Fault) -> float:
    return 1 + (DRIFT if fault.whom % 2 else -DRIFT)


def _ahead_ms(client: Any) -> float:
    """Return the difference in ms between the server's clock and this host's clock, from the fastest of 30 answers."""
    samples: list[tuple[float, float]] = []
    for _ in range(30):
        began = time.time()
        seconds, microseconds = client.time()
        answered = time.time()
        samples.append((answered - began, seconds + microseconds / 1e6 - (began + answered) / 2))
    return min(samples)[1] * 1e3


def _accept_where_held(system: SystemUnderTest) -> None:
    """Accept the clock like an operator, if an event process holds promotion after the clock was corrected."""
    time.sleep(2)
    for driver in system.drivers:
        log = driver.process.log
        resumed = log.count("promotion resumes")
        if log.count("promotion is held") > resumed and driver.is_running:
            os.kill(driver.process.pid, signal.SIGUSR1)
