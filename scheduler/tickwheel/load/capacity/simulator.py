"""The workers of a scenario in memory: the same lottery, batches and long polls, moment by moment, in no time.

A discrete-event simulation after Nextdoor's, who sized their workers by simulated production load. Given the same tasks
and seed it gives the same waits. A worker is a generator that yields how long it is busy, or the queue it waits at.
"""

import heapq
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

from tickwheel.load.capacity.ready_queue import Pending, Task
from tickwheel.load.capacity.selector import selector
from tickwheel.load.scenario.scenario import QueueLoad, Scenario, WorkerGroup
from tickwheel.tasks.queue_selectors import QueueSelector, selected


@dataclass(frozen=True, slots=True)
class Overheads:
    """What the system takes beside the work, in seconds of the scenario."""

    fetch_s: float = 0.002
    """A call that fetches a batch, or hears that there is none."""
    finish_s: float = 0.002
    """A call that finishes a batch."""
    each_s: float = 0.0
    """With each message: how much longer than planned a worker of a run sleeps."""

    def times(self, factor: float) -> "Overheads":
        return Overheads(self.fetch_s * factor, self.finish_s * factor, self.each_s * factor)


_DEFAULT = Overheads()


@dataclass(slots=True)
class Simulated:
    """What became of the tasks that were due from ``since_s`` on, by queue."""

    waits: dict[str, list[float]] = field(default_factory=dict)
    """From due until a worker has it."""
    starts: dict[str, list[float]] = field(default_factory=dict)
    """From due until its run begins."""
    busy_s: float = 0.0
    """How long workers ran tasks, from ``since_s`` until the last one was due."""
    worker_s: float = 0.0
    """How long that is, of all workers."""

    @property
    def utilisation(self) -> float:
        return self.busy_s / self.worker_s if self.worker_s else 0.0


@dataclass(frozen=True, slots=True)
class _Wait:
    """A worker waits at a queue."""

    queue: QueueLoad


_Life = Generator["float | _Wait", list[Task], None]


@dataclass(slots=True, eq=False)
class _Worker:
    group: WorkerGroup
    filter: int
    life: _Life
    waits: int = 0
    """How often it has begun to wait: tells the end of one wait from that of an older one."""
    waiting: QueueLoad | None = None


def simulate(
    scenario: Scenario,
    groups: Sequence[WorkerGroup],
    tasks: Sequence[Task],
    since_s: float = 0.0,
    overheads: Overheads = _DEFAULT,
    seed: int = 1,
) -> Simulated:
    """Let the groups' workers run all tasks, which come in order of their due times."""
    return _Simulation(scenario, groups, since_s, overheads, seed).run(tasks)


class _Simulation:
    def __init__(
        self, scenario: Scenario, groups: Sequence[WorkerGroup], since_s: float, overheads: Overheads, seed: int
    ) -> None:
        self._overheads = overheads
        self._since_s = self._until_s = since_s
        self._found = Simulated(
            {queue.name: [] for queue in scenario.queues}, {queue.name: [] for queue in scenario.queues}
        )
        filters = list({tuple(sorted(group.where.items())): group.where for group in groups}.values())
        self._queues = {queue.name: queue for queue in scenario.queues}
        self._pending = {queue.name: Pending(filters) for queue in scenario.queues}
        self._waiting: dict[tuple[str, int], deque[tuple[_Worker, int]]] = {}
        self._events: list[tuple[float, int, _Worker | Task, int]] = []
        self._sequence = 0
        self._now_s = 0.0
        self._left = 0
        self._workers = []
        for group in groups:
            # One generator of a group's lots, as if its workers drew one after the other.
            lots = selector(group, scenario.queues, Random(f"{seed}/{group.name}"))
            for _ in range(group.count):
                worker = _Worker(group, filters.index(group.where), None)  # type: ignore[arg-type]  # the next line
                worker.life = self._life(worker, lots)
                self._workers.append(worker)

    def run(self, tasks: Sequence[Task]) -> Simulated:
        coming = iter(tasks)
        task = next(coming, None)
        if task is None:
            return self._found
        self._now_s, self._until_s = task.due_s, tasks[-1].due_s
        for worker in self._workers:
            self._go_on(worker, None)
        # Tasks are ahead of events of the same moment: who waits is there for them.
        while task is not None or self._left:
            if task is not None and (not self._events or task.due_s <= self._events[0][0]):
                self._now_s = task.due_s
                self._left += 1
                self._ready(task)
                task = next(coming, None)
                continue
            self._now_s, _, who, waits = heapq.heappop(self._events)
            if isinstance(who, Task):
                self._ready(who)
            elif not waits:
                self._go_on(who, [])
            elif who.waiting is not None and who.waits == waits:
                # Its long poll is over.
                who.waiting = None
                self._go_on(who, [])
        self._found.worker_s = max(0.0, self._until_s - self._since_s) * len(self._workers)
        return self._found

    def _life(self, worker: _Worker, lots: QueueSelector[QueueLoad]) -> _Life:
        """As `worker.Worker` does it."""
        while True:
            queue, batch = yield from self._select(worker, lots)
            if not batch:
                batch = yield _Wait(queue)
            while not batch and self._is_idle(worker):
                # It would ask every queue and hear of nothing: in one step, as that is most of what a night is.
                queue = selected(lots, lambda asked: False)
                batch = yield _Wait(queue)
            for left in range(queue.iterations, 0, -1):
                if not batch:
                    break
                yield from self._work(queue, batch)
                batch = (yield from self._fetch(worker, queue)) if left > 1 else []

    def _is_idle(self, worker: _Worker) -> bool:
        return not any(self._pending[name].has(worker.filter) for name in worker.group.queues)

    def _select(
        self, worker: _Worker, lots: QueueSelector[QueueLoad]
    ) -> Generator[float, list[Task], tuple[QueueLoad, list[Task]]]:
        selection = lots.select_queue()
        if not isinstance(selection, Generator):
            return selection, (yield from self._fetch(worker, selection))
        batch: list[Task] = []
        try:
            asked = next(selection)
            while True:
                batch = yield from self._fetch(worker, asked)
                asked = selection.send(bool(batch))
        except StopIteration as chosen:
            return chosen.value, batch

    def _fetch(self, worker: _Worker, queue: QueueLoad) -> Generator[float, list[Task], list[Task]]:
        if self._overheads.fetch_s:
            yield self._overheads.fetch_s
        return self._taken(worker, queue)

    def _taken(self, worker: _Worker, queue: QueueLoad) -> list[Task]:
        batch = self._pending[queue.name].take(worker.filter, queue.batch)
        for task in batch:
            task.attempts += 1
            if task.attempts == 1 and task.due_s >= self._since_s:
                self._found.waits[queue.name].append(self._now_s - task.due_s)
        return batch

    def _work(self, queue: QueueLoad, batch: list[Task]) -> Generator[float, list[Task], None]:
        for task in batch:
            if task.attempts == 1 and task.due_s >= self._since_s:
                self._found.starts[queue.name].append(self._now_s - task.due_s)
            began_s = max(self._now_s, self._since_s)
            yield task.run_s + self._overheads.each_s
            self._found.busy_s += max(0.0, min(self._now_s, self._until_s) - began_s)
            self._wake(queue, self._pending[queue.name].release(task))
            if task.attempts > task.failures or task.attempts >= queue.max_attempts:
                self._left -= 1
            else:
                self._at(self._now_s + queue.backoff_s * 2 ** (task.attempts - 1) / 2, task, 0)
        if self._overheads.finish_s:
            yield self._overheads.finish_s

    def _go_on(self, worker: _Worker, batch: list[Task] | None) -> None:
        """Let a worker do what it does next."""
        step = worker.life.send(batch) if batch is not None else next(worker.life)
        if isinstance(step, _Wait):
            worker.waits += 1
            worker.waiting = step.queue
            line = self._waiting.setdefault((step.queue.name, worker.filter), deque())
            line.append((worker, worker.waits))
            # Where there is but one queue, whoever has waited long enough waits there again.
            if len(worker.group.queues) > 1:
                self._at(self._now_s + step.queue.long_poll_s, worker, worker.waits)
        else:
            self._at(self._now_s + step, worker, 0)

    def _ready(self, task: Task) -> None:
        queue = self._queues[task.queue]
        self._wake(queue, self._pending[task.queue].add(task))

    def _wake(self, queue: QueueLoad, filters: Iterable[int]) -> None:
        """Who waits longest for such a message takes what there is."""
        for number in filters:
            line = self._waiting.get((queue.name, number))
            while line and self._pending[queue.name].has(number):
                worker, waits = line.popleft()
                if worker.waiting is queue and worker.waits == waits:
                    worker.waiting = None
                    self._go_on(worker, self._taken(worker, queue))

    def _at(self, time_s: float, who: "_Worker | Task", waits: int) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (time_s, self._sequence, who, waits))
