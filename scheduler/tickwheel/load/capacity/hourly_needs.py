"""How many workers each hour of the day needs, so that so large a share of messages waits no longer than a target.

Each hour is simulated as it is planned: its tasks from the curves and distributions of the scenario, or from the
recording, run by the workers' own lottery. Of an hour with very many the busiest stretch stands for all of it; one with
few is simulated for several days. The wait is from due until the run begins, which is what somebody waits for: in a
batch a message waits for those before it, too.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tickwheel.load.capacity import due_tasks
from tickwheel.load.capacity.ready_queue import Task
from tickwheel.load.capacity.simulator import Overheads, simulate
from tickwheel.load.scenario.arrival_rate import HOUR_S
from tickwheel.load.scenario.scenario import QueueLoad, Scenario, WorkerGroup, with_workers

# Tasks of an hour that are simulated at most; and at least of its rarest queue, over several days, if so many are due.
_TASKS_MAX, _TASKS_MIN = 5_000, 200
_DAYS_MAX = 5
_STRETCHES = 24
_WARM_UP_MAX_S, _WARM_UP_RUNS = HOUR_S, 5
# Workers are not to be busier than this in the mean: nearer to all of the time waits grow over days, and an hour's
# simulation does not show it.
_BUSY_MAX = 0.95
# Beyond so many times the workers that are busy in the mean, more of them do not help.
_WORKERS_FACTOR_MAX = 4


@dataclass(frozen=True, slots=True)
class CapacityTarget:
    """``share`` of the messages of every queue begin to run in time: within ``wait_s``, or as the scenario has it."""

    wait_s: float | None = None
    share: float = 0.95

    def max_wait_s(self, queue: QueueLoad) -> float:
        """Seconds."""
        return queue.wait_target_s if self.wait_s is None else self.wait_s


@dataclass(frozen=True, slots=True)
class HourNeeds:
    """One line of the table."""

    hour: int
    due_per_s: float
    busy: float
    """How many workers are busy in the mean: the least that could do it at all."""
    workers: int | None
    """None where no number of them meets the target."""
    utilisation: float
    waits_s: Mapping[str, float]
    """Of each queue the wait that ``share`` of its messages do not pass, with so many workers."""


def hours(scenario: Scenario) -> range:
    """The hours of the day that a scenario goes over."""
    first = int(scenario.start_s // HOUR_S)
    return range(first, max(first + 1, math.ceil((scenario.start_s + scenario.length_s) / HOUR_S - 1e-9)))


def hourly_needs(
    scenario: Scenario,
    target: CapacityTarget,
    overheads: Overheads,
    show: Callable[[int], None] = lambda hour: None,
    is_over: Callable[[], bool] = lambda: False,
) -> Iterator[HourNeeds]:
    """The needs of each hour, one after the other; until ``is_over``."""
    known: dict[tuple[object, ...], HourNeeds] = {}
    for hour in hours(scenario):
        if is_over():
            return
        show(hour)
        days = _days(scenario, hour)
        # Hours of one steady rate need the same.
        rates = tuple(due_tasks.rate(scenario, queue, *days.stretch) for queue in scenario.queues)
        if scenario.recording or rates not in known:
            known[rates] = _needs(scenario, days, target, overheads, hour, sum(rates))
        yield replace(known[rates], hour=hour % 24)


@dataclass(frozen=True, slots=True)
class _Days:
    """What is simulated of an hour: the tasks of each day, and from when on they count."""

    stretch: tuple[float, float]
    tasks: Sequence[Sequence[Task]]


def _days(scenario: Scenario, hour: int) -> _Days:
    since_s, until_s = hour * HOUR_S, (hour + 1) * HOUR_S
    since_s, until_s = max(since_s, scenario.start_s), min(until_s, scenario.start_s + scenario.length_s)
    rates = [due_tasks.rate(scenario, queue, since_s, until_s) for queue in scenario.queues]
    total, length_s = sum(rates), until_s - since_s
    if total * length_s > _TASKS_MAX:
        length_s = min(length_s, max(_TASKS_MAX / total, _bursts_s(scenario)))
        since_s = _busiest_start(scenario, since_s, until_s, length_s)
    rarest = min((rate * length_s for rate in rates if rate), default=0.0)
    count = 1 if scenario.recording or not rarest else min(_DAYS_MAX, math.ceil(_TASKS_MIN / rarest))
    warm_s = min(_WARM_UP_MAX_S, max(length_s / 4, _WARM_UP_RUNS * max(q.run.mean for q in scenario.queues)))
    before_s = since_s - warm_s

    tasks = [
        due_tasks.tasks_of_period(scenario, before_s, since_s + length_s, f"{scenario.seed}/{hour}/{day}")
        for day in range(count)
    ]
    return _Days((since_s, since_s + length_s), tasks)


def _bursts_s(scenario: Scenario) -> float:
    """A stretch has a whole burst of each queue in it, with the time until the next."""
    bursts = [queue.arrivals.burst for queue in scenario.queues if queue.arrivals is not None]
    return max((burst.every_s + burst.length_s for burst in bursts if burst is not None), default=0.0)


def _busiest_start(scenario: Scenario, since_s: float, until_s: float, length_s: float) -> float:
    """When the stretch begins that keeps most workers busy."""
    last = until_s - length_s

    def busy(begin_s: float) -> float:
        return sum(
            _work(queue) * due_tasks.rate(scenario, queue, begin_s, begin_s + length_s) for queue in scenario.queues
        )

    return max((since_s + n * (last - since_s) / (_STRETCHES - 1) for n in range(_STRETCHES)), key=busy)


def _needs(
    scenario: Scenario, days: _Days, target: CapacityTarget, overheads: Overheads, hour: int, due_per_s: float
) -> HourNeeds:
    trials: dict[int, tuple[bool, float, dict[str, float]]] = {}
    busy = sum(_work(queue) * due_tasks.rate(scenario, queue, *days.stretch) for queue in scenario.queues)
    groups = scenario.workers or [WorkerGroup("workers", [queue.name for queue in scenario.queues])]

    def meets(count: int) -> bool:
        if count not in trials:
            trials[count] = _try_workers(scenario, with_workers(groups, count), days, target, overheads)
        return trials[count][0]

    first = max(len(groups), math.ceil(busy / _BUSY_MAX))
    workers = find_minimum(meets, first, _WORKERS_FACTOR_MAX * (first + len(groups)))
    _, utilisation, waits = trials[max(trials) if workers is None else workers]
    return HourNeeds(hour, due_per_s, busy, workers, utilisation, waits)


def _work(queue: QueueLoad) -> float:
    """What a message of a queue takes of a worker in the mean: attempts that fail are work, too."""
    attempts = sum(queue.failures**n for n in range(queue.max_attempts))
    return queue.run.mean * attempts


def _try_workers(
    scenario: Scenario, groups: Sequence[WorkerGroup], days: _Days, target: CapacityTarget, overheads: Overheads
) -> tuple[bool, float, dict[str, float]]:
    """Whether so many workers meet the target; how busy they are; how long messages wait then."""
    starts: dict[str, list[float]] = {}
    busy_s = worker_s = 0.0
    for day, tasks in enumerate(days.tasks):
        for task in tasks:
            task.attempts = 0
        result = simulate(scenario, groups, tasks, days.stretch[0], overheads, scenario.seed + day)
        busy_s, worker_s = busy_s + result.busy_s, worker_s + result.worker_s
        for name, seen in result.starts.items():
            starts.setdefault(name, []).extend(seen)
    waits = {name: percentile(seen, target.share) for name, seen in starts.items() if seen}
    in_time = all(wait <= target.max_wait_s(scenario.queue(name)) for name, wait in waits.items())
    return in_time, busy_s / worker_s if worker_s else 0.0, waits


def find_minimum(meets: Callable[[int], bool], first: int, limit: int) -> int | None:
    """The least number that meets, where more of them do no worse: by doubling steps, then by halves."""
    if meets(first):
        return first
    below, step = first, max(1, math.isqrt(first) // 2)
    while not meets(min(below + step, limit)):
        if below + step >= limit:
            return None
        below, step = below + step, 2 * step
    above = min(below + step, limit)
    while above - below > 1:
        middle = (above + below) // 2
        below, above = (below, middle) if meets(middle) else (middle, above)
    return above


def percentile(values: Sequence[float], share: float) -> float:
    """The value that ``share`` (0 to 1) of all do not pass, by nearest rank."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
