"""What follows from a run: what the system takes beside the work, whether the simulator agrees, how many workers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from tickwheel.load.capacity import due_tasks
from tickwheel.load.capacity.hourly_needs import CapacityTarget, HourNeeds, hourly_needs, percentile
from tickwheel.load.capacity.simulator import Overheads, simulate
from tickwheel.load.run.run_result import RunResult
from tickwheel.load.scenario.scenario import Scenario

# Beyond it a simulation of the run takes longer than it is worth.
_TASKS_MAX = 200_000
SHARES = (0.5, 0.95)


@dataclass(frozen=True, slots=True)
class Agreement:
    """Of one queue: from due until the run began, measured and simulated, in seconds of the scenario."""

    queue: str
    share: float
    measured_s: float
    simulated_s: float

    @property
    def difference_s(self) -> float:
        return self.measured_s - self.simulated_s


@dataclass(slots=True)
class Advice:
    """How many workers are needed. ``scenario`` is what the table is for: a load that was run smaller, in full."""

    scenario: Scenario
    target: CapacityTarget
    overheads: Overheads
    """Of real time, as they are where no day is sped up."""
    is_measured: bool
    needs: list[HourNeeds] = field(default_factory=list)
    agreement: list[Agreement] = field(default_factory=list)
    not_compared: str = ""
    """Why the simulator was not compared with the run."""


def measure_overheads(outcome: RunResult) -> Overheads:
    """What calls took in a run, in real seconds. Of calls that were planned, from when they were."""
    meter, default = outcome.measurements, Overheads()
    fetches = meter.combined(("dequeue", "dequeue empty"))
    fetch_s = fetches.get_mean_value() / 1e6 if fetches.get_total_count() else default.fetch_s
    return Overheads(fetch_s, meter.mean("complete") or default.finish_s)


def advise(
    scenario: Scenario,
    target: CapacityTarget,
    outcome: RunResult | None,
    show: Callable[[int], None] = lambda hour: None,
    is_over: Callable[[], bool] = lambda: False,
) -> Advice:
    """The table for a scenario in full; and where it was run, how far the simulator is from what was measured."""
    overheads = Overheads() if outcome is None else measure_overheads(outcome)
    advice = Advice(scenario, target, overheads, outcome is not None)
    if outcome is not None:
        advice.agreement, advice.not_compared = _compare(outcome)
    advice.needs.extend(hourly_needs(scenario, target, overheads, show, is_over))
    return advice


def _compare(outcome: RunResult) -> tuple[list[Agreement], str]:
    scenario = outcome.scenario
    if any(queue.polls is not None for queue in scenario.queues):
        return [], "calls at planned times took messages, and no worker of the simulator does that"
    end_s = outcome.seconds * scenario.speed_up
    tasks = list(takewhile(lambda task: task.due_s < end_s, due_tasks.tasks_of_run(scenario)))
    if not 0 < len(tasks) <= _TASKS_MAX:
        return [], f"the run had {len(tasks):,} tasks; from 1 to {_TASKS_MAX:,} are compared"
    real = replace(measure_overheads(outcome), per_message_s=outcome.measurements.mean("overrun") or 0.0)
    sped_up = replace(
        scenario,
        queues=[replace(queue, long_poll_s=scenario.long_poll(queue) * scenario.speed_up) for queue in scenario.queues],
    )
    simulated = simulate(sped_up, scenario.workers, tasks, overheads=real.times(scenario.speed_up), seed=scenario.seed)
    return list(_agreements(outcome, simulated.starts)), ""


def _agreements(outcome: RunResult, starts: dict[str, list[float]]) -> Sequence[Agreement]:
    agreements = []
    for name, simulated in starts.items():
        # A message without a delay is there once its enqueue is answered, and its wait counts from before.
        delayed = outcome.scenario.queue(name).delay.mean > 0
        late_s = 0.0 if delayed else (outcome.measurements.mean("enqueue") or 0.0) * outcome.scenario.speed_up
        for share in SHARES:
            seen = outcome.waits_s("start", name, share)
            if seen is not None and simulated:
                agreements.append(Agreement(name, share, seen, percentile(simulated, share) + late_s))
    return agreements
