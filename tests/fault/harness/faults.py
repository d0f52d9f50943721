"""The kinds of faults, and the injection of the faults of a run. A fault without a mark proves nothing."""

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from tests.fault.harness import (
    client_faults,
    cluster_faults,
    election_faults,
    failovers,
    link_faults,
    relay_faults,
    server_faults,
)
from tests.fault.harness.call_log import now
from tests.fault.harness.plan import Fault
from tests.fault.harness.system_under_test import SystemUnderTest

_MARK_S = 30.0

# A context manager that injects the fault on entry and undoes it on exit. It yields a function that returns the mark.
Kind = Callable[[SystemUnderTest, Fault], AbstractContextManager[Callable[[], str]]]

# The system recovers during these faults: other processes take over or continue.
TAKEN_OVER: dict[str, Kind] = {
    "kill_driver": election_faults.kill_driver,
    "stop_driver": election_faults.stop_driver,
    "kill_program": election_faults.kill_program,
    "pause_driver": election_faults.pause_driver,
    "cut_off_from_zookeeper": election_faults.cut_off_from_zookeeper,
    "cut_off_from_server": election_faults.cut_off_from_server,
    "kill_zookeeper": election_faults.kill_zookeeper,
    "lose_quorum": election_faults.lose_quorum,
    "roll_zookeeper": election_faults.roll_zookeeper,
    "kill_worker": client_faults.kill_worker,
    "stop_worker": client_faults.stop_worker,
    "pause_worker": client_faults.pause_worker,
    "kill_primary": cluster_faults.kill_primary,
    "move_slot": cluster_faults.move_slot,
    "drift_server": server_faults.drift_server,
    "drift_drivers": server_faults.drift_drivers,
    "kill_relay": relay_faults.kill_relay,
    "kill_kafka": relay_faults.kill_kafka,
    "stop_kafka": relay_faults.stop_kafka,
}
KINDS: dict[str, Kind] = TAKEN_OVER | {
    "kill_server": server_faults.kill_server,
    "stop_server": server_faults.stop_server,
    "pause_server": server_faults.pause_server,
    "limit_memory": server_faults.limit_memory,
    "fill_disk": server_faults.fill_disk,
    "step_clock": server_faults.step_hour,
    "step_drivers_clock": server_faults.step_drivers_clock,
    "lose_replies": link_faults.lose_replies,
    "slow_link": link_faults.slow_link,
    "stall_drivers": link_faults.stall_drivers,
    "kill_producer": client_faults.kill_producer,
    "burn_cpu": client_faults.burn_cpu,
    "fail_over": failovers.fail_over,
    "split": failovers.split,
    "split_drivers": failovers.split_drivers,
}


@dataclass(slots=True)
class Injection:
    """A fault that was injected. ``began`` and ``over`` are times of the call logs' clock.

    ``began_ms`` and ``since_ms`` are times of the wall clock. The recovery time counts from ``since_ms``: the beginning
    of the fault if other processes take over, else its end. ``epochs`` are the epochs of all shards at the
    beginning. ``mark`` is the evidence that the fault had an effect, or empty.
    """

    fault: Fault
    began: float = 0.0
    over: float = 0.0
    began_ms: float = 0.0
    since_ms: float = 0.0
    epochs: list[int] = field(default_factory=list)
    mark: str = ""
    error: BaseException | None = None


def inject(system: SystemUnderTest, faults: tuple[Fault, ...]) -> list[Injection]:
    """Inject all faults at their times, each in a separate thread. Return when all faults are over."""
    injections = [Injection(fault) for fault in faults]
    threads = [threading.Thread(target=_carry_out, args=(system, injection), daemon=True) for injection in injections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for injection in injections:
        if injection.error is not None:
            raise injection.error
    return injections


def _carry_out(system: SystemUnderTest, injection: Injection) -> None:
    fault = injection.fault
    time.sleep(max(system.started + fault.at - now(), 0))
    injection.began, injection.began_ms = now(), time.time() * 1000
    injection.epochs = [epoch for epoch, _ in system.fences_now()]
    try:
        with KINDS[fault.kind](system, fault) as mark:
            injection.since_ms = time.time() * 1000
            time.sleep(fault.lasts)
        injection.over = now()
        if fault.kind not in TAKEN_OVER:
            injection.since_ms = time.time() * 1000
        system.until(lambda: bool(mark()), "", _MARK_S)
        injection.mark = str(mark())
    except TimeoutError:
        injection.mark = ""
    except BaseException as error:
        injection.error = error
