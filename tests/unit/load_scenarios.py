"""Minimal scenarios for tests of the load harness: one queue and one group of workers."""

from collections.abc import Sequence
from random import Random
from typing import Any

from tickwheel.load.capacity.ready_queue import Task
from tickwheel.load.scenario.arrival_rate import ArrivalRate
from tickwheel.load.scenario.distributions import exponential
from tickwheel.load.scenario.scenario import QueueLoad, Scenario, WorkerGroup


def one_queue(workers: int = 1, rate: float = 1.0, run_s: float = 1.0, **options: Any) -> Scenario:
    """Return a scenario with Poisson arrivals and exponential run times (M/M/c)."""
    settings: dict[str, Any] = {
        "batch": 1,
        "arrivals": ArrivalRate((0.0,), (rate,)),
        "run": exponential(run_s),
    } | options
    return scenario([QueueLoad("q", **settings)], [WorkerGroup("w", ["q"], 1, workers)])


def scenario(queues: Sequence[QueueLoad], workers: Sequence[WorkerGroup], **options: Any) -> Scenario:
    return Scenario("test", queues, workers, **options)


def poisson(count: int, rate: float, run_s: float, seed: int = 1) -> list[Task]:
    """Return tasks of queue q with Poisson arrivals and exponential run times."""
    random, at_s, tasks = Random(seed), 0.0, []
    for _ in range(count):
        at_s += random.expovariate(rate)
        tasks.append(Task(at_s, "q", random.expovariate(1) * run_s, at_s))
    return tasks


def erlang_c(workers: int, busy: float) -> float:
    """Return the probability of waiting in M/M/c if ``busy`` workers are busy on average (Erlang, 1917)."""
    blocked = 1.0
    for n in range(1, workers + 1):
        blocked = busy * blocked / (n + busy * blocked)
    return blocked / (1 - busy / workers * (1 - blocked))
