"""The simulator's tasks that are due in one run or in one period of a scenario's day.

The tasks of a period are sampled directly by due time, without their arrivals. If the messages of a Poisson process are
delayed independently of each other, their due times form a Poisson process again (displacement theorem). Its rate at
time t is the mean over all delays d of the arrival rate at time (t - d). Leaving out the cancelled messages thins the
process.
"""

from collections.abc import Iterator
from random import Random

from tickwheel.load.capacity.ready_queue import Task
from tickwheel.load.scenario.arrivals import Arrival, draw_arrival, plan_arrivals
from tickwheel.load.scenario.scenario import QueueLoad, Row, Scenario

_DRAWS = 64


def tasks_of_run(scenario: Scenario) -> list[Task]:
    """Return the tasks that the producer of a run plans, ordered by due time. Times count from the start of the run."""
    count = scenario.max_messages
    tasks = []
    for n, arrival in enumerate(plan_arrivals(scenario)):
        if n == count:
            break
        if not arrival.is_cancelled:
            tasks.append(_task(scenario.queue(arrival.queue), arrival, arrival.due_s))
    return sorted(tasks, key=lambda task: task.due_s)


def tasks_of_period(scenario: Scenario, since_s: float, until_s: float, seed: object) -> list[Task]:
    """Return tasks that are due between two times of the day, ordered by due time."""
    tasks: list[Task] = []
    for queue in scenario.queues:
        tasks += _tasks_of_queue(scenario, queue, since_s, until_s, Random(f"{seed}/{queue.name}"))
    return sorted(tasks, key=lambda task: task.due_s)


def rate(scenario: Scenario, queue: QueueLoad, since_s: float, until_s: float) -> float:
    """Return the mean number of tasks of a queue that are due per second in a period."""
    if scenario.recording:
        return len(_rows(scenario, queue, since_s, until_s)) / (until_s - since_s)
    if queue.arrivals is None:
        return 0.0
    random, total = Random(f"{scenario.seed}/{queue.name}/rate"), 0.0
    for n in range(_DRAWS):
        arrival = draw_arrival(queue, 0.0, random)
        if not arrival.is_cancelled:
            # One sample at a random time in each part of the period, so that samples are not in step with bursts.
            time_s = since_s + (n + random.random()) * (until_s - since_s) / _DRAWS
            total += queue.arrivals.rate_at(time_s - arrival.delay_s)
    return total / _DRAWS


def _tasks_of_queue(
    scenario: Scenario, queue: QueueLoad, since_s: float, until_s: float, random: Random
) -> Iterator[Task]:
    if scenario.recording:
        for row in _rows(scenario, queue, since_s, until_s):
            yield Task(row.arrival_s, row.queue, row.run_s, row.arrival_s)
        return
    if queue.arrivals is None:
        return
    max_rate, time_s = queue.arrivals.max_rate, since_s
    while max_rate and (time_s := time_s + random.expovariate(max_rate)) < until_s:
        arrival = draw_arrival(queue, time_s, random)
        if not arrival.is_cancelled and random.random() * max_rate <= queue.arrivals.rate_at(time_s - arrival.delay_s):
            yield _task(queue, arrival, time_s)


def _rows(scenario: Scenario, queue: QueueLoad, since_s: float, until_s: float) -> list[Row]:
    """Return the lines of the recording for a queue and a period."""
    return [row for row in scenario.recording if row.queue == queue.name and since_s <= row.arrival_s < until_s]


def _task(queue: QueueLoad, arrival: Arrival, due_s: float) -> Task:
    value = None
    if queue.exclusive is not None and arrival.metadata is not None:
        value = arrival.metadata[queue.exclusive.key]
    deadline_s = due_s + (arrival.deadline_s or 0.0)
    return Task(due_s, queue.name, arrival.run_s, deadline_s, arrival.failures, value, arrival.metadata)
