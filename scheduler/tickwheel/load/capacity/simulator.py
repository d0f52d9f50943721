"""Simulated workers: the selectors, batches and long polls of real workers, in memory and in simulated time.

This is a discrete-event simulation. The method comes from Nextdoor, whose engineers determined the number of their
workers with a simulated production load. The same tasks and seed give the same waits. A worker is a generator. It
yields the time for which the worker is busy, or the queue at which the worker waits.
"""

import heapq
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

from tickwheel.load.capacity.ready_queue import ReadyQueue, Task
from tickwheel.load.capacity.selector import make_selector
from tickwheel.load.scenario.scenario import QueueLoad, Scenario, WorkerGroup
from tickwheel.worker.selectors import QueueSelector, select


@dataclass(frozen=True, slots=True)
class Overheads:
    """Time that calls take in addition to the work, in seconds of the scenario."""

    fetch_s: float = 0.002
    """One call that fetches a batch, or finds none."""
    finish_s: float = 0.002
    """One call that settles a batch."""
    per_message_s: float = 0.0
    """For each message: how much too late a worker of the load generator wakes. It sleeps instead of working."""

    def times(self, factor: float) -> "Overheads":
        return Overheads(self.fetch_s * factor, self.finish_s * factor, self.per_message_s * factor)


_DEFAULT = Overheads()


@dataclass(slots=True)
class SimulationResult:
    """Results of a simulation from ``since_s`` on."""

    starts: dict[str, list[float]] = field(default_factory=dict)
    """By queue: for each task that was due since then, the time from its due time until its first run begins."""
    busy_s: float = 0.0
    """Total time that workers ran tasks, from ``since_s`` until the last task was due."""
    worker_s: float = 0.0
    """Total time of all workers in that period."""


# A step of a worker: an amount of time, or the queue at which it waits.
_WorkerSteps = Generator[float | QueueLoad, list[Task], None]


@dataclass(slots=True, eq=False)
class _Worker:
    group: WorkerGroup
    filter: int
    steps: _WorkerSteps
    waits: int = 0
    """Number of waits so far. Distinguishes the time-out of the current wait from those of earlier waits."""
    waiting: QueueLoad | None = None


def simulate(
    scenario: Scenario,
    groups: Sequence[WorkerGroup],
    tasks: Sequence[Task],
    since_s: float = 0.0,
    overheads: Overheads = _DEFAULT,
    seed: int = 1,
) -> SimulationResult:
    """Simulate the groups' workers with all tasks, which are ordered by due time."""
    return _Simulation(scenario, groups, since_s, overheads, seed).run(tasks)


class _Simulation:
    def __init__(
        self, scenario: Scenario, groups: Sequence[WorkerGroup], since_s: float, overheads: Overheads, seed: int
    ) -> None:
        self._overheads = overheads
        self._since_s = self._until_s = since_s
        self._result = SimulationResult({queue.name: [] for queue in scenario.queues})
        filters = list({tuple(sorted(group.where.items())): group.where for group in groups}.values())
        self._queues = {queue.name: queue for queue in scenario.queues}
        self._pending = {queue.name: ReadyQueue(filters) for queue in scenario.queues}
        self._waiting: dict[tuple[str, int], deque[tuple[_Worker, int]]] = {}
        self._events: list[tuple[float, int, _Worker | Task, int]] = []
        self._sequence = 0
        self._now_s = 0.0
        self._left = 0
        self._workers = []
        for group in groups:
            # All workers of the group share one selector, and so one sequence of random numbers.
            group_selector = make_selector(group, scenario.queues, Random(f"{seed}/{group.name}"))
            for _ in range(group.count):
                worker = _Worker(group, filters.index(group.where), None)  # type: ignore[arg-type]  # the next line
                worker.steps = self._worker_steps(worker, group_selector)
                self._workers.append(worker)

    def run(self, tasks: Sequence[Task]) -> SimulationResult:
        upcoming = iter(tasks)
        task = next(upcoming, None)
        if task is None:
            return self._result
        self._now_s, self._until_s = task.due_s, tasks[-1].due_s
        for worker in self._workers:
            self._resume(worker, None)
        # Tasks come before other events of the same time, so that a worker whose wait ends at this time gets a task.
        while task is not None or self._left:
            if task is not None and (not self._events or task.due_s <= self._events[0][0]):
                self._now_s = task.due_s
                self._left += 1
                self._add_ready(task)
                task = next(upcoming, None)
                continue
            self._now_s, _, subject, waits = heapq.heappop(self._events)
            if isinstance(subject, Task):
                self._add_ready(subject)
            elif not waits:
                self._resume(subject, [])
            elif subject.waiting is not None and subject.waits == waits:
                # The long poll has ended without a task.
                subject.waiting = None
                self._resume(subject, [])
        self._result.worker_s = max(0.0, self._until_s - self._since_s) * len(self._workers)
        return self._result

    def _worker_steps(self, worker: _Worker, group_selector: QueueSelector[QueueLoad]) -> _WorkerSteps:
        """Yield the steps of a worker, the same as those of `tickwheel.load.run.worker.Worker`."""
        while True:
            queue, batch = yield from self._select(worker, group_selector)
            if not batch:
                batch = yield queue
            while not batch and self._is_idle(worker):
                # All queues of the worker are empty, so the selector chooses without simulated fetches. This is faster,
                # and workers are mostly idle at night.
                queue = select(group_selector, lambda candidate: False)
                batch = yield queue
            for left in range(queue.iterations, 0, -1):
                if not batch:
                    break
                yield from self._work(queue, batch)
                batch = (yield from self._fetch(worker, queue)) if left > 1 else []

    def _is_idle(self, worker: _Worker) -> bool:
        return not any(self._pending[name].has(worker.filter) for name in worker.group.queues)

    def _select(
        self, worker: _Worker, group_selector: QueueSelector[QueueLoad]
    ) -> Generator[float, list[Task], tuple[QueueLoad, list[Task]]]:
        selection = group_selector.select_queue()
        if not isinstance(selection, Generator):
            return selection, (yield from self._fetch(worker, selection))
        batch: list[Task] = []
        try:
            candidate = next(selection)
            while True:
                batch = yield from self._fetch(worker, candidate)
                candidate = selection.send(bool(batch))
        except StopIteration as chosen:
            return chosen.value, batch

    def _fetch(self, worker: _Worker, queue: QueueLoad) -> Generator[float, list[Task], list[Task]]:
        if self._overheads.fetch_s:
            yield self._overheads.fetch_s
        return self._take(worker, queue)

    def _take(self, worker: _Worker, queue: QueueLoad) -> list[Task]:
        batch = self._pending[queue.name].take(worker.filter, queue.batch)
        for task in batch:
            task.attempts += 1
        return batch

    def _work(self, queue: QueueLoad, batch: list[Task]) -> Generator[float, list[Task], None]:
        for task in batch:
            if task.attempts == 1 and task.due_s >= self._since_s:
                self._result.starts[queue.name].append(self._now_s - task.due_s)
            began_s = max(self._now_s, self._since_s)
            yield task.run_s + self._overheads.per_message_s
            self._result.busy_s += max(0.0, min(self._now_s, self._until_s) - began_s)
            self._wake(queue, self._pending[queue.name].release(task))
            if task.attempts > task.failures or task.attempts >= queue.max_attempts:
                self._left -= 1
            else:
                self._schedule(self._now_s + queue.backoff_s * 2 ** (task.attempts - 1) / 2, task, 0)
        if self._overheads.finish_s:
            yield self._overheads.finish_s

    def _resume(self, worker: _Worker, batch: list[Task] | None) -> None:
        """Run the next step of a worker."""
        step = worker.steps.send(batch) if batch is not None else next(worker.steps)
        if isinstance(step, QueueLoad):
            worker.waits += 1
            worker.waiting = step
            line = self._waiting.setdefault((step.name, worker.filter), deque())
            line.append((worker, worker.waits))
            # A worker with only one queue would wait at the same queue again, so its wait needs no time-out.
            if len(worker.group.queues) > 1:
                self._schedule(self._now_s + step.long_poll_s, worker, worker.waits)
        else:
            self._schedule(self._now_s + step, worker, 0)

    def _add_ready(self, task: Task) -> None:
        queue = self._queues[task.queue]
        self._wake(queue, self._pending[task.queue].add(task))

    def _wake(self, queue: QueueLoad, filters: Iterable[int]) -> None:
        """Deliver tasks to the workers that wait at the queue with these filters, the longest wait first."""
        for number in filters:
            line = self._waiting.get((queue.name, number))
            while line and self._pending[queue.name].has(number):
                worker, waits = line.popleft()
                if worker.waiting is queue and worker.waits == waits:
                    worker.waiting = None
                    self._resume(worker, self._take(worker, queue))

    def _schedule(self, time_s: float, subject: "_Worker | Task", waits: int) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (time_s, self._sequence, subject, waits))
