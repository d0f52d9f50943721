"""Workers needed in each hour of the day, so that a share of the messages waits no longer than a target.

Each hour is simulated as planned: its tasks come from the scenario's rates and distributions, or from the recording,
and the workers use their own selectors. If an hour has very many tasks, only its busiest period is simulated; if it has
few, up to five days are simulated. The wait is the time from a message's due time until its task begins. A message of a
batch also waits for the messages before it.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tickwheel.load.capacity import due_tasks
from tickwheel.load.capacity.ready_queue import Task
from tickwheel.load.capacity.simulator import Overheads, simulate
from tickwheel.load.scenario.arrival_rate import HOUR_S
from tickwheel.load.scenario.scenario import QueueLoad, Scenario, WorkerGroup, with_workers

# The maximum number of simulated tasks of an hour, and the minimum for the hour's rarest queue. To reach the minimum,
# up to `_DAYS_MAX` days are simulated.
_TASKS_MAX, _TASKS_MIN = 5_000, 200
_DAYS_MAX = 5
_STRETCHES = 24
_WARM_UP_MAX_S, _WARM_UP_RUNS = HOUR_S, 5
# Upper limit for the mean share of busy workers. If the share is closer to 1, waits grow over days, and the simulation
# of one hour does not detect this growth.
_BUSY_MAX = 0.95
# The search stops at about this multiple of the first number of workers that it tries. If that many workers do not meet
# the target, more workers do not help.
_WORKERS_FACTOR_MAX = 4


@dataclass(frozen=True, slots=True)
class CapacityTarget:
    """The target: ``share`` of the messages of every queue start within ``wait_s``.

    If ``wait_s`` is None, they start within the ``wait_target`` that the scenario has for the queue.
    """

    wait_s: float | None = None
    share: float = 0.95

    def max_wait_s(self, queue: QueueLoad) -> float:
        """Return the longest wait of a queue, in seconds."""
        return queue.wait_target_s if self.wait_s is None else self.wait_s


@dataclass(frozen=True, slots=True)
class HourNeeds:
    """The needs of one hour: one row of the table that the command prints."""

    hour: int
    due_per_s: float
    busy: float
    """Number of workers that are busy on average: a lower bound for the workers needed."""
    workers: int | None
    """None if no number of workers meets the target."""
    utilisation: float
    waits_s: Mapping[str, float]
    """By queue, in seconds: with ``workers`` workers, ``CapacityTarget.share`` of the messages wait at most this time.

    If ``workers`` is None, the values are the waits with the largest number of workers that was simulated.
    """


def hours(scenario: Scenario) -> range:
    """Return the hours of the day that a scenario covers."""
    first = int(scenario.start_s // HOUR_S)
    return range(first, max(first + 1, math.ceil((scenario.start_s + scenario.length_s) / HOUR_S - 1e-9)))


def hourly_needs(
    scenario: Scenario,
    target: CapacityTarget,
    overheads: Overheads,
    show: Callable[[int], None] = lambda hour: None,
    is_over: Callable[[], bool] = lambda: False,
) -> Iterator[HourNeeds]:
    """Yield the needs of each hour in order, until ``is_over``."""
    known: dict[tuple[object, ...], HourNeeds] = {}
    for hour in hours(scenario):
        if is_over():
            return
        show(hour)
        days = _days(scenario, hour)
        # Hours with the same rates need the same number of workers.
        rates = tuple(due_tasks.rate(scenario, queue, *days.stretch) for queue in scenario.queues)
        if scenario.recording or rates not in known:
            known[rates] = _needs(scenario, days, target, overheads, hour, sum(rates))
        yield replace(known[rates], hour=hour % 24)


@dataclass(frozen=True, slots=True)
class _Days:
    """The simulated tasks of an hour, day by day. Only tasks that are due in the period ``stretch`` are measured."""

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
    """Return the minimum length of a period that contains a burst of each queue and the time to the next burst."""
    bursts = [queue.arrivals.burst for queue in scenario.queues if queue.arrivals is not None]
    return max((burst.every_s + burst.length_s for burst in bursts if burst is not None), default=0.0)


def _busiest_start(scenario: Scenario, since_s: float, until_s: float, length_s: float) -> float:
    """Return the start of the period that keeps the largest number of workers busy."""
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
    """Return the mean work of a message in worker seconds. Failed attempts count as work, too."""
    attempts = sum(queue.failures**n for n in range(queue.max_attempts))
    return queue.run.mean * attempts


def _try_workers(
    scenario: Scenario, groups: Sequence[WorkerGroup], days: _Days, target: CapacityTarget, overheads: Overheads
) -> tuple[bool, float, dict[str, float]]:
    """Return whether the workers meet the target, the share of busy workers, and the waits by queue."""
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
    """Return the smallest number from ``first`` to ``limit`` that meets the target, or None.

    The search doubles its step, and then bisects. This is correct only if waits never grow with more workers.
    """
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
    """Return the value that ``share`` (0 to 1) of the values do not exceed, by nearest rank."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
