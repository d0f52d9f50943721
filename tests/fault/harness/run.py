"""One run from start to end: servers and processes, load, faults, recovery, the end of all messages, and the check."""

import shutil
import sys
import tempfile
import time
import traceback
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path
from typing import Any

from tests.fault.harness.aftermath import AFTERMATHS
from tests.fault.harness.call_log import OK, now
from tests.fault.harness.checker import check
from tests.fault.harness.cluster_deployment import ClusterDeployment
from tests.fault.harness.collect import collect, entries, unfinished
from tests.fault.harness.deployment import Deployment, RowUnavailable, SmallDisk
from tests.fault.harness.elections import Election, LastResort, LeaseElection, LockFiles, ZooKeeperElection
from tests.fault.harness.faults import Injection, inject
from tests.fault.harness.lateness import recovery_s, spread_ms, waits
from tests.fault.harness.load import EXCLUSIVE, LEASE_MS, MAX_ATTEMPTS, PLAIN, VALUE_KEY
from tests.fault.harness.plan import RunPlan
from tests.fault.harness.relay import Relay
from tests.fault.harness.replicated_deployment import ReplicatedDeployment
from tests.fault.harness.rows import ROWS, Row
from tests.fault.harness.run_evidence import Evidence, Violation
from tests.fault.harness.server_faults import DRIFT
from tests.fault.harness.shared_services import SharedServices
from tests.fault.harness.system_under_test import NAMESPACE, SystemUnderTest
from tests.fault.harness.worker import POISONED
from tickwheel import Tickwheel, TickwheelError

DEPLOYMENTS: dict[str, type[Deployment]] = {
    "single": Deployment,
    "small disk": SmallDisk,
    "replicated": ReplicatedDeployment,
    "cluster": ClusterDeployment,
}
# After the last fault, at least one message must end in each interval of this length.
ENDS_S = 60.0
_SOON = timedelta(minutes=1)


@dataclass(slots=True)
class Outcome:
    """The result of a run. ``void`` contains the faults without a mark, about which the run proves nothing."""

    plan: RunPlan
    messages: int = 0
    faults: int = 0
    seconds: float = 0.0
    recoveries_s: list[float] = field(default_factory=list)
    lateness_ms: dict[str, float] = field(default_factory=dict)
    marks: list[str] = field(default_factory=list)
    void: list[str] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)


def run(plan: RunPlan, shared: SharedServices, *, keep: bool = False) -> Outcome:
    """Execute a run. With ``keep``, its folder is kept in any case. Raises RowUnavailable."""
    row, began = ROWS[plan.row], time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix=f"tickwheel-fault-{plan.row}-"))
    outcome = Outcome(plan)
    try:
        election = _election(row, folder, shared)
        with (
            closing(election),
            DEPLOYMENTS[row.place](folder, proxied=row.proxied, faked=row.faked) as place,
            Tickwheel(
                place.own_url,
                namespace=NAMESPACE,
                shards=plan.load.shards,
                history="relay",
                timeout=timedelta(seconds=2),
            ) as tickwheel,
        ):
            _create_queues(tickwheel)
            system = SystemUnderTest(plan, place, tickwheel, election, _relay(row, shared))
            try:
                _play(system, outcome)
            except TimeoutError as error:
                outcome.violations.append(Violation("L2", str(error)))
            finally:
                system.close()
    except RowUnavailable:
        raise
    except Exception as error:
        # Possibly an error of the harness. This run fails, and other runs continue.
        outcome.violations.append(Violation("error", f"{type(error).__name__}: {error}"))
        outcome.marks.append(traceback.format_exc())
    finally:
        outcome.seconds = time.monotonic() - began
        if not (keep or outcome.violations):
            shutil.rmtree(folder, ignore_errors=True)
    if outcome.violations:
        outcome.marks.append(f"kept in {folder}")
    return outcome


def _election(row: Row, folder: Path, shared: SharedServices) -> Election:
    """Return the election of the row: ZooKeeper, lock files or leases."""
    if row.by_lease:
        return LastResort() if row.by_workers else LeaseElection()
    if not row.zookeepers:
        return LockFiles(folder)
    # The name of the folder is unique for each run.
    return ZooKeeperElection(shared.zookeeper(row.zookeepers), folder.name)


def _relay(row: Row, shared: SharedServices) -> Relay | None:
    return Relay(shared.kafka()) if row.relayed else None


def _create_queues(tickwheel: Tickwheel) -> None:
    common: dict[str, Any] = {
        "lease": timedelta(milliseconds=LEASE_MS),
        "max_attempts": MAX_ATTEMPTS,
        "backoff": timedelta(milliseconds=50),
        "backoff_max": timedelta(milliseconds=500),
        # The minimum is the lifetime of a session, so no repeated call creates an ended message again.
        "retention": timedelta(0),
        "errored_retention": timedelta(0),
    }
    tickwheel.create_queue(PLAIN, **common)
    tickwheel.create_queue(EXCLUSIVE, exclusive_key=VALUE_KEY, **common)


def _play(system: SystemUnderTest, outcome: Outcome) -> None:
    plan, row = system.plan, ROWS[system.plan.row]
    system.start()
    injections = inject(system, plan.faults)
    end = system.started + plan.load.seconds
    system.until(lambda: now() > end, "the load is over", plan.load.seconds + 1)
    left = _until_all_ended(system)
    system.end_workers()
    aftermath = AFTERMATHS[row.after](system) if row.after else None
    system.end_drivers()
    evidence = collect(system)
    evidence.unfinished = left
    evidence.turned_back = [
        (injection.began - 0.1, injection.over + 0.1)
        for injection in injections
        if injection.fault.kind == "step_clock"
    ]
    if any(fault.kind == "drift_server" for fault in plan.faults):
        evidence.drift = DRIFT
    outcome.violations = check(evidence)
    if aftermath is not None:
        outcome.violations += aftermath.violations
        outcome.marks += aftermath.marks
        outcome.faults += aftermath.faults
    if system.relay is not None:
        outcome.marks.append(f"{evidence.repeated} relayed twice")
    if plan.load.poisoned:
        deaths = sum(process.log.count(POISONED) for worker in system.workers for process in worker.ended)
        outcome.faults += deaths
        outcome.marks.append(f"workers killed by poisoned messages: {deaths}")
    measure(outcome, evidence, injections)


def _until_all_ended(system: SystemUnderTest) -> dict[str, int]:
    """Wait until all producers and messages have ended. Without progress, return the unfinished messages."""
    deadline, lowest = time.monotonic() + ENDS_S, (sys.maxsize, 0)
    left: dict[str, int] = {"unknown": 1}
    while left and time.monotonic() < deadline:
        if any(producer.is_running for producer in system.producers):
            left = {"producers": 1}
        else:
            try:
                left = unfinished(system.tickwheel)
                waiting = entries(system.tickwheel)[1] if system.relay is not None else 0
                if (now_left := (sum(left.values()), waiting)) < lowest:
                    lowest, deadline = now_left, time.monotonic() + ENDS_S
                if not left and waiting:
                    left = {"not relayed": waiting}
                if left and ROWS[system.plan.row].faked == "server":
                    _cancel_distant_messages(system.tickwheel)
            except TickwheelError as error:
                left = {str(error): 1}
        time.sleep(0.1)
    return left


def _cancel_distant_messages(tickwheel: Tickwheel) -> None:
    """Cancel messages like an operator: if a clock was an hour ahead, delays and back-offs end an hour too late."""
    for queue in tickwheel.queues():
        for view in queue.messages("invisible"):
            if view.until and view.until > datetime.now(UTC) + _SOON:
                queue.cancel(view.id, view.exclusive_value)


def measure(outcome: Outcome, evidence: Evidence, injections: list[Injection]) -> None:
    """Add the measurements of the run to its outcome, and violations if they exceed the limits of the row."""
    row = ROWS[outcome.plan.row]
    acknowledged = {id for call in evidence.calls if call.op == "enqueue" and call.outcome == OK for id in call.ids}
    outcome.messages = len(acknowledged)
    outcome.faults += len(injections)
    if not evidence.turned_back:
        outcome.lateness_ms = spread_ms(evidence.transitions)
    for which, limit in (("p99", row.late_p99_ms), ("max", row.late_max_ms)):
        if limit and outcome.lateness_ms.get(which, 0) > limit:
            outcome.violations.append(Violation("L1", f"late by {outcome.lateness_ms}, {which} of {limit} allowed"))
    if evidence.unfinished:
        outcome.violations.append(
            Violation("L2", f"not all messages ended, and none within {ENDS_S:.0f} s: {evidence.unfinished}")
        )
    rewritten = ", and a file was rewritten" if evidence.rewritten else ""
    outcome.marks.append(f"{sum(map(len, evidence.claims))} claims{rewritten}")
    # Waits that end later than now ended by a clock that was ahead.
    until_now = time.time() * 1000
    all_waits = [wait for wait in waits(evidence.transitions) if wait.over_ms <= until_now or wait.over_ms == inf]
    for injection in injections:
        if not injection.mark:
            outcome.void.append(f"{injection.fault.kind} at {injection.fault.at} s")
            continue
        outcome.marks.append(f"{injection.fault.kind}: {injection.mark}")
        if not row.elects and injection.epochs != (epochs := [fences[-1][0] for fences in evidence.fences]):
            text = f"{injection.fault.kind}: another process was elected, epochs {epochs} after {injection.epochs}"
            outcome.violations.append(Violation("L3", text))
        following = [other.began_ms for other in injections if other.began_ms > injection.since_ms]
        recovered = recovery_s(all_waits, injection.since_ms, min(following, default=inf))
        if recovered is None:
            continue
        if recovered < inf:
            outcome.recoveries_s.append(round(recovered, 3))
        if recovered > row.recovers_s:
            text = f"{injection.fault.kind}: in time again after {recovered:.1f} s, {row.recovers_s} allowed"
            outcome.violations.append(Violation("L2", text))
