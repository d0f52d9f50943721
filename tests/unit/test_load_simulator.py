"""The load simulator agrees with closed-form results, and follows the rules of the server."""

import heapq
import math
from dataclasses import replace

import pytest

from tests.unit.load_scenarios import erlang_c, one_queue, poisson, scenario
from tickwheel.load.capacity.hourly_needs import CapacityTarget, find_minimum, hourly_needs, percentile
from tickwheel.load.capacity.ready_queue import ReadyQueue, Task
from tickwheel.load.capacity.simulator import Overheads, simulate
from tickwheel.load.scenario.arrival_rate import ArrivalRate
from tickwheel.load.scenario.distributions import constant, exponential
from tickwheel.load.scenario.scenario import QueueLoad, WorkerGroup, with_workers

pytestmark = pytest.mark.unit

NONE = Overheads(0.0, 0.0)


@pytest.mark.parametrize("workers", [1, 5, 20])
def test_waits_equal_the_recursion_for_first_come_first_served_workers(workers: int) -> None:
    plan = one_queue(workers)
    tasks = poisson(5_000, 0.9 * workers, 1.0)
    free, waits = [0.0] * workers, []
    for task in tasks:
        begins = max(task.due_s, heapq.heappop(free))
        heapq.heappush(free, begins + task.run_s)
        waits.append(begins - task.due_s)
    result = simulate(plan, plan.workers, tasks, overheads=NONE)
    assert result.starts["q"] == pytest.approx(waits)


@pytest.mark.parametrize(("workers", "busy"), [(1, 0.5), (2, 1.2), (5, 3.0)])
def test_waits_match_erlang_c(workers: int, busy: float) -> None:
    plan, waits = one_queue(workers, busy), []
    # Consecutive waits are correlated, so several short days give a better mean than one long day.
    for day in range(4):
        result = simulate(plan, plan.workers, poisson(8_000, busy, 1.0, day), since_s=50, overheads=NONE)
        assert result.busy_s / result.worker_s == pytest.approx(busy / workers, rel=0.05)
        waits += result.starts["q"]
    chance = erlang_c(workers, busy)
    assert sum(wait > 1e-9 for wait in waits) / len(waits) == pytest.approx(chance, rel=0.2)
    assert sum(waits) / len(waits) == pytest.approx(chance / (workers - busy), rel=0.25)


def test_the_same_tasks_and_seed_give_the_same_waits() -> None:
    queues = [QueueLoad(name, weight, run=exponential(1.0)) for name, weight in (("a", 10), ("b", 90))]
    plan = scenario(queues, [WorkerGroup("w", ["a", "b"], 1, 3)])

    def waits() -> dict[str, list[float]]:
        tasks = [replace(task, queue="ab"[n % 2]) for n, task in enumerate(poisson(2_000, 2.5, 1.0))]
        return simulate(plan, plan.workers, tasks).starts

    assert waits() == waits()


def test_the_time_of_calls_keeps_workers_busy_too() -> None:
    plan = one_queue(1, 1.0)
    tasks = [Task(0.0, "q", 1.0, 0.0) for _ in range(4)]
    result = simulate(plan, plan.workers, tasks, overheads=Overheads(fetch_s=0.25, finish_s=0.5, per_message_s=0.25))
    # A wake-up delivers the first task. Each of the others waits for a run, a finish and a fetch.
    assert result.starts["q"] == pytest.approx([0.25, 2.25, 4.25, 6.25])


def test_the_most_urgent_message_is_taken_first_and_those_of_a_value_one_at_a_time() -> None:
    pending = ReadyQueue([{}])
    first, second, other = (
        Task(0.0, "q", 1.0, deadline, value=value) for deadline, value in ((1.0, "x"), (2.0, "x"), (3.0, "y"))
    )
    for task in (other, second, first):
        pending.add(task)
    assert pending.take(0, 10) == [first, other]
    assert not pending.has(0)
    assert pending.release(first) == (0,)
    assert pending.take(0, 10) == [second]


def test_a_filter_finds_its_messages_behind_more_urgent_messages_that_do_not_match() -> None:
    pending = ReadyQueue([{}, {"gpu": "a100"}])
    plain = Task(0.0, "q", 1.0, 1.0, value="x", metadata={"gpu": "none"})
    special = Task(0.0, "q", 1.0, 2.0, value="x", metadata={"gpu": "a100"})
    running = Task(0.0, "q", 1.0, 0.0, value="x", metadata={"gpu": "none"})
    for task in (running, plain, special):
        pending.add(task)
    assert pending.take(0, 1) == [running]
    assert not pending.has(1)
    assert set(pending.release(running)) == {0, 1}
    assert pending.take(1, 1) == [special]
    assert not pending.has(0)


def test_a_failed_task_is_run_again_after_its_back_off() -> None:
    plan = one_queue(1, 1.0, backoff_s=2.0)
    failing, next_one = Task(0.0, "q", 1.0, 0.0, failures=1), Task(3.0, "q", 1.0, 3.0)
    result = simulate(plan, plan.workers, [failing, next_one], overheads=NONE)
    # The second attempt starts at 2 s and occupies the worker until 3 s. Neither task waits.
    assert result.starts["q"] == [0.0, 0.0]
    assert failing.attempts == 2


def test_a_light_queue_is_not_starved_by_a_heavy_one() -> None:
    queues = [QueueLoad("heavy", 90, batch=1, iterations=1), QueueLoad("light", 10, batch=1, iterations=1)]
    plan = scenario(queues, [WorkerGroup("w", ["heavy", "light"])])
    heavy = [Task(0.0, "heavy", 1.0, 0.0) for _ in range(400)]
    light = [Task(0.0, "light", 1.0, 0.0) for _ in range(20)]
    result = simulate(plan, plan.workers, heavy + light, overheads=NONE)
    assert percentile(result.starts["light"], 1.0) < 400


def test_the_number_of_workers_matches_erlang_c() -> None:
    # 17 workers are busy on average. Expected is the minimum number with which 95 % of the messages wait at most 1 s.
    plan = replace(one_queue(1, 17.0), length_s=3_600.0)
    [hour] = hourly_needs(plan, CapacityTarget(1.0, 0.95), NONE)

    def late(workers: int) -> float:
        return erlang_c(workers, 17.0) * math.exp(17.0 - workers)

    expected = next(workers for workers in range(18, 40) if late(workers) <= 0.05)
    assert hour.workers in (expected - 1, expected, expected + 1)
    assert hour.busy == pytest.approx(17.0)


def test_each_hour_of_the_day_has_its_own_number_of_workers() -> None:
    plan = one_queue(1, run_s=10.0, arrivals=ArrivalRate((0.0, 3_600.0, 7_200.0), (0.1, 0.1, 2.0)))
    first, second, _ = list(hourly_needs(replace(plan, length_s=3 * 3_600.0), CapacityTarget(5.0), NONE))
    assert first.workers is not None
    assert second.workers is not None
    assert first.workers < second.workers / 4


def test_if_no_number_of_workers_suffices_the_hour_has_no_number_of_workers() -> None:
    from tickwheel.load.scenario.metadata_values import numbered_values

    plan = one_queue(1, rate=1.0, run=constant(2.0), exclusive=numbered_values("project", 1, 0.0))
    [hour] = hourly_needs(replace(plan, length_s=600.0), CapacityTarget(5.0), NONE)
    assert hour.workers is None


def test_the_smallest_sufficient_number_is_found() -> None:
    for wanted in (1, 2, 17, 100, 399, 400):
        assert find_minimum(lambda count, wanted=wanted: count >= wanted, 1, 400) == wanted  # type: ignore[misc]
    assert find_minimum(lambda count: False, 1, 400) is None


def test_workers_are_divided_in_the_proportion_of_the_groups() -> None:
    groups = [WorkerGroup("gpu", ["q"], 1, 3), WorkerGroup("cpu", ["q"], 2, 8)]
    assert [group.count for group in with_workers(groups, 38)] == [6, 32]
    assert [group.count for group in with_workers(groups, 2)] == [1, 1]
