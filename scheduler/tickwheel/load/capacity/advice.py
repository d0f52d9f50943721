"""Conclusions from a run: the overheads of the system, whether the simulator agrees, and the workers needed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from tickwheel.load.capacity import due_tasks
from tickwheel.load.capacity.hourly_needs import CapacityTarget, HourNeeds, hourly_needs, percentile
from tickwheel.load.capacity.simulator import Overheads, simulate
from tickwheel.load.run.run_result import RunResult
from tickwheel.load.scenario.scenario import Scenario

# A run with more tasks is not simulated, because the simulation would take too long.
_TASKS_MAX = 200_000
SHARES = (0.5, 0.95)


@dataclass(frozen=True, slots=True)
class Agreement:
    """A percentile (``share``) of a queue's start times, measured and simulated.

    The start time of a message is the time from its due time until its task began, in seconds of the scenario.
    """

    queue: str
    share: float
    measured_s: float
    simulated_s: float


@dataclass(slots=True)
class Advice:
    """The workers needed in each hour. ``scenario`` has the full load, even if the run was scaled down."""

    scenario: Scenario
    target: CapacityTarget
    overheads: Overheads
    """In real seconds. The simulation that computes ``needs`` uses them unchanged, because it has no speed-up."""
    is_measured: bool
    needs: list[HourNeeds] = field(default_factory=list)
    agreement: list[Agreement] = field(default_factory=list)
    not_compared: str = ""
    """The reason if the simulator was not compared with the run."""


def measure_overheads(outcome: RunResult) -> Overheads:
    """Return the mean duration of calls in a run, in real seconds.

    If the scenario has `Polls`, the duration of a poll includes its delay after its planned time.
    """
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
    """Compute the workers needed in each hour of the full scenario. After a run, compare the simulator with the run."""
    overheads = Overheads() if outcome is None else measure_overheads(outcome)
    advice = Advice(scenario, target, overheads, outcome is not None)
    if outcome is not None:
        advice.agreement, advice.not_compared = _compare(outcome)
    advice.needs.extend(hourly_needs(scenario, target, overheads, show, is_over))
    return advice


def _compare(outcome: RunResult) -> tuple[list[Agreement], str]:
    scenario = outcome.scenario
    if any(queue.polls is not None for queue in scenario.queues):
        return [], "the run polled at planned times, and the simulator does not model such polls"
    end_s = outcome.seconds * scenario.speed_up
    tasks = list(takewhile(lambda task: task.due_s < end_s, due_tasks.tasks_of_run(scenario)))
    if not 0 < len(tasks) <= _TASKS_MAX:
        return [], f"the run had {len(tasks):,} tasks, and the comparison needs 1 to {_TASKS_MAX:,}"
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
        # The measured wait of a message without a delay starts at the planned time of its enqueue, and so includes the
        # duration of the enqueue. The simulated wait does not.
        delayed = outcome.scenario.queue(name).delay.mean > 0
        late_s = 0.0 if delayed else (outcome.measurements.mean("enqueue") or 0.0) * outcome.scenario.speed_up
        for share in SHARES:
            seen = outcome.waits_s("start", name, share)
            if seen is not None and simulated:
                agreements.append(Agreement(name, share, seen, percentile(simulated, share) + late_s))
    return agreements
