"""The faults by kind: how each is done to a run and undone, and its mark. One that left no mark proves nothing."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from services.process import ServiceError
from tests.fault.harness.cluster_faults import kill_primary, move_slot
from tests.fault.harness.election_faults import (
    cut_off_from_zookeeper,
    kill_driver,
    kill_zookeeper,
    lose_quorum,
    pause_driver,
    roll_zookeeper,
    stop_driver,
)
from tests.fault.harness.failovers import fail_over, split
from tests.fault.harness.history import now
from tests.fault.harness.place import step_clock
from tests.fault.harness.plan import Fault
from tests.fault.harness.relay_faults import kill_kafka, stop_kafka
from tests.fault.harness.world import World, log

_HOUR_S = 3600
_RETRY_S = 30.0
# Nobody waits for these to be undone.
_TAKEN_OVER = {
    *(
        "kill_driver",
        "stop_driver",
        "pause_driver",
        "cut_off_from_zookeeper",
        "kill_zookeeper",
        "lose_quorum",
        "roll_zookeeper",
    ),
    *("kill_worker", "stop_worker", "pause_worker", "kill_primary", "move_slot", "kill_kafka", "stop_kafka"),
}


@dataclass(slots=True)
class Injection:
    """A fault as it was done. ``began`` and ``over`` are moments of the history's clock. Recovery counts from
    ``since_ms`` of the wall clock: the beginning where others take over, the end of the fault else.

    ``mark`` is what shows that it took place; empty where nothing does.
    """

    fault: Fault
    began: float = 0.0
    over: float = 0.0
    since_ms: float = 0.0
    mark: str = ""
    error: BaseException | None = None


# A context that does the fault on entry and undoes it on exit; what it yields tells its mark, asked when all is over.
Kind = Callable[[World, Fault], Any]


def inject(world: World, faults: tuple[Fault, ...]) -> list[Injection]:
    """Carry out all faults at their times, each in a thread of its own; returns when all are over."""
    injections = [Injection(fault) for fault in faults]
    threads = [threading.Thread(target=_carry_out, args=(world, each), daemon=True) for each in injections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for injection in injections:
        if injection.error is not None:
            raise injection.error
    return injections


def _carry_out(world: World, injection: Injection) -> None:
    fault = injection.fault
    time.sleep(max(world.started + fault.at - now(), 0))
    injection.began = now()
    try:
        with KINDS[fault.kind](world, fault) as mark:
            injection.since_ms = time.time() * 1000
            time.sleep(fault.lasts)
        injection.over = now()
        if fault.kind not in _TAKEN_OVER:
            injection.since_ms = time.time() * 1000
        world.until(lambda: bool(mark()), "", _RETRY_S)
        injection.mark = str(mark())
    except TimeoutError:
        injection.mark = ""
    except BaseException as error:
        injection.error = error


@contextmanager
def kill_server(world: World, fault: Fault) -> Iterator[Callable[[], str]]:
    server = world.place.server
    before = server.pid
    server.kill()
    yield lambda: f"process {server.pid} after {before}" if server.pid != before else ""
    server.start()


@contextmanager
def stop_server(world: World, fault: Fault) -> Iterator[Callable[[], str]]:
    server = world.place.server
    before = server.pid
    server.stop()
    server.start()
    yield lambda: f"process {server.pid} after {before}"


@contextmanager
def pause_server(world: World, fault: Fault) -> Iterator[Callable[[], str]]:
    with world.place.client() as client:
        client.ping()
        world.place.server.pause()
        asked = now()
        answered: list[float] = []

        def ask() -> None:
            with suppress(redis.RedisError):
                client.ping()
            answered.append(now() - asked)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        yield lambda: f"silent for {answered[0]:.2f} s" if answered and answered[0] >= min(fault.lasts, 4) else ""
        world.place.server.resume()
        thread.join()


@contextmanager
def lose_replies(world: World, fault: Fault) -> Iterator[Callable[[], str]]:
    proxies = world.place.proxies
    before = sum(proxy.lost for proxy in proxies)
    for proxy in proxies:
        proxy.loses = fault.amount
    yield lambda: f"{lost} lost" if (lost := sum(proxy.lost for proxy in proxies) - before) else ""
    for proxy in proxies:
        proxy.loses = 0.0


@contextmanager
def slow_link(world: World, fault: Fault) -> Iterator[Callable[[], str]]:
    """Both links are slow; then they stop one by one, and go on in the other order."""
    chance, proxies = random.Random(fault.at), world.place.proxies
    before = sum(proxy.delayed for proxy in proxies)
    for proxy in proxies:
        proxy.delay_s = fault.amount
    yield lambda: f"{held} held up" if (held := sum(proxy.delayed for proxy in proxies) - before) else ""
    for proxy in proxies:
        proxy.stall()
        time.sleep(chance.uniform(0.1, 0.4))
    for proxy in proxies:
        proxy.go_on()
        time.sleep(chance.uniform(0.1, 0.4))
        proxy.delay_s = 0.0


@contextmanager
def stall_drivers(world: World, fault: Fault) -> Iterator[Callable[[], str]]:
    """The event processes are cut off from the server, and clients are not."""
    proxy = world.place.proxies[1]
    said = "".join(log(kept.process) for kept in world.drivers).count("lost")
    proxy.stall()
    yield lambda: "it noticed" if "".join(log(kept.process) for kept in world.drivers).count("lost") > said else ""
    proxy.go_on()
    proxy.cut()


@contextmanager
def kill_worker(world: World, fault: Fault) -> Iterator[Callable[[], str]]:
    kept = world.workers[fault.whom % len(world.workers)]
    before = len(kept.ended)
    kept.kill()
    yield lambda: "it was replaced" if len(kept.ended) > before else ""


@contextmanager
def stop_worker(world: World, fault: Fault) -> Iterator[Callable[[], str]]:
    kept = world.workers[fault.whom % len(world.workers)]
    before = len(kept.ended)
    kept.stop()
    yield lambda: "it was replaced" if len(kept.ended) > before else ""


@contextmanager
def pause_worker(world: World, fault: Fault) -> Iterator[Callable[[], str]]:
    process = world.workers[fault.whom % len(world.workers)].process
    process.pause()
    world.until(lambda: _stat(process.pid)[0] == "T", "it is stopped", _RETRY_S)
    yield lambda: f"{process.name} was stopped"
    with suppress(ServiceError, ProcessLookupError):
        process.resume()


@contextmanager
def kill_producer(world: World, fault: Fault) -> Iterator[Callable[[], str]]:
    kept = world.producers[fault.whom % len(world.producers)]
    was_running = kept.is_running
    kept.kill()
    yield lambda: "its last call is open" if was_running else ""


@contextmanager
def limit_memory(world: World, fault: Fault) -> Iterator[Callable[[], str]]:
    with world.place.client() as client:
        before, refused = _refused(client), 0
        client.config_set("maxmemory", int(client.info("memory")["used_memory"]) - 1)
        yield lambda: f"{refused} refused" if refused else ""
        client.config_set("maxmemory", 0)
        refused = _refused(client) - before


def _refused(client: Any) -> int:
    return int(client.info("errorstats").get("errorstat_OOM", {"count": 0})["count"])


@contextmanager
def fill_disk(world: World, fault: Fault) -> Iterator[Callable[[], str]]:
    """The server ends when it cannot write what it would have to answer for."""
    server, filler = world.place.server, world.place.disk / "filler"
    with filler.open("wb") as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 16))
            file.flush()
    world.until(lambda: not server.is_running or "MISCONF" in log(server), "the server notices", _RETRY_S)
    mark = "the server refused" if server.is_running else "the server ended"
    yield lambda: mark
    filler.unlink()
    server.restart()


@contextmanager
def step_hour(world: World, fault: Fault) -> Iterator[Callable[[], str]]:
    step = _HOUR_S if fault.whom % 2 else -_HOUR_S
    with world.place.client() as client:
        step_clock(world.place.faketime, step)
        shown = client.time()[0] - time.time()
        assert abs(shown - step) < 5, f"the server's clock is {shown:.0f} s ahead, not {step}"
        yield lambda: f"{shown:+.0f} s"
        step_clock(world.place.faketime, 0)
    _accept_where_held(world)


@contextmanager
def step_drivers_clock(world: World, fault: Fault) -> Iterator[Callable[[], str]]:
    """Event processes that start while their host's clock is wrong take the server's for the wrong one."""
    step_clock(world.place.faketime, _HOUR_S if fault.whom % 2 else -_HOUR_S)
    kept, fences = world.leading(fault.whom), world.fences_now()
    kept.kill()
    yield lambda: "another claimed" if world.fences_now() != fences else ""
    step_clock(world.place.faketime, 0)
    _accept_where_held(world)


def _accept_where_held(world: World) -> None:
    """An operator's part: a clock that was wrong for so long that it was taken as right is right again."""
    time.sleep(2)
    for kept in world.drivers:
        said = log(kept.process)
        if said.rfind("promotion is held") > said.rfind("agrees again") and kept.is_running:
            os.kill(kept.process.pid, signal.SIGUSR1)


@contextmanager
def burn_cpu(world: World, fault: Fault) -> Iterator[Callable[[], str]]:
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
    """What the system says of a process, from its state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


KINDS: dict[str, Kind] = {
    "kill_driver": kill_driver,
    "stop_driver": stop_driver,
    "pause_driver": pause_driver,
    "kill_server": kill_server,
    "stop_server": stop_server,
    "pause_server": pause_server,
    "lose_replies": lose_replies,
    "slow_link": slow_link,
    "stall_drivers": stall_drivers,
    "kill_worker": kill_worker,
    "stop_worker": stop_worker,
    "pause_worker": pause_worker,
    "kill_producer": kill_producer,
    "limit_memory": limit_memory,
    "fill_disk": fill_disk,
    "step_clock": step_hour,
    "step_drivers_clock": step_drivers_clock,
    "roll_zookeeper": roll_zookeeper,
    "stop_kafka": stop_kafka,
    "burn_cpu": burn_cpu,
    "fail_over": fail_over,
    "cut_off_from_zookeeper": cut_off_from_zookeeper,
    "kill_zookeeper": kill_zookeeper,
    "lose_quorum": lose_quorum,
    "move_slot": move_slot,
    "kill_kafka": kill_kafka,
    "kill_primary": kill_primary,
    "split": split,
}
