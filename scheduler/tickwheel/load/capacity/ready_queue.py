"""Deliverable tasks of one queue, in memory: earliest deadline first, with filters and exclusive values.

The rules of delivery are those of the server. Durability and concurrent access are not simulated.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Task:
    """A message for a simulated worker. Times are seconds of the scenario."""

    due_s: float
    queue: str
    run_s: float
    deadline_s: float
    failures: int = 0
    value: str | None = None
    metadata: Mapping[str, str] | None = None
    attempts: int = 0
    is_pending: bool = False


_Entry = tuple[float, int, Task]


class ReadyQueue:
    """The tasks of one queue. ``filters`` are the filters of the workers; methods refer to a filter by its index."""

    def __init__(self, filters: Sequence[Mapping[str, str]]) -> None:
        self._filters = filters
        # A task is in the heap of every filter that it matches. If it is taken from one heap, the others skip it.
        self._heaps: list[list[_Entry]] = [[] for _ in filters]
        self._running: set[str] = set()
        # Tasks whose exclusive value is running: by value, then by the filters that they match. When the running task
        # ends, the first task for each combination of filters returns to the heaps.
        self._blocked: dict[str, dict[tuple[int, ...], list[_Entry]]] = {}
        self._number = 0

    def add(self, task: Task) -> tuple[int, ...]:
        """Add a deliverable task, and return the filters that it matches."""
        self._number += 1
        matched = tuple(n for n, where in enumerate(self._filters) if _matches(where, task.metadata))
        self._push((task.deadline_s, self._number, task), matched)
        return matched

    def take(self, number: int, limit: int) -> list[Task]:
        """Take tasks that match a filter, most urgent first."""
        tasks: list[Task] = []
        while len(tasks) < limit and self.has(number):
            _, _, task = heapq.heappop(self._heaps[number])
            task.is_pending = False
            if task.value is not None:
                self._running.add(task.value)
            tasks.append(task)
        return tasks

    def has(self, number: int) -> bool:
        """Return whether a pending task matches the filter ``number`` and is not blocked."""
        heap = self._heaps[number]
        while heap:
            task = heap[0][2]
            if not task.is_pending:
                heapq.heappop(heap)
            elif task.value is not None and task.value in self._running:
                self._block(heapq.heappop(heap))
            else:
                return True
        return False

    def release(self, task: Task) -> tuple[int, ...]:
        """End a task, so that blocked tasks of the same value may run. Return the filters that these tasks match."""
        if task.value is None:
            return ()
        self._running.discard(task.value)
        unblocked: set[int] = set()
        waiting = self._blocked.get(task.value, {})
        for matched in list(waiting):
            self._push(heapq.heappop(waiting[matched]), matched)
            unblocked.update(matched)
            if not waiting[matched]:
                del waiting[matched]
        if not waiting:
            self._blocked.pop(task.value, None)
        return tuple(unblocked)

    def _push(self, entry: _Entry, matched: Sequence[int]) -> None:
        entry[2].is_pending = True
        for n in matched:
            heapq.heappush(self._heaps[n], entry)

    def _block(self, entry: _Entry) -> None:
        task = entry[2]
        task.is_pending = False
        assert task.value is not None
        matched = tuple(n for n, where in enumerate(self._filters) if _matches(where, task.metadata))
        heapq.heappush(self._blocked.setdefault(task.value, {}).setdefault(matched, []), entry)


def _matches(where: Mapping[str, str], metadata: Mapping[str, str] | None) -> bool:
    return not where or (metadata is not None and where.items() <= metadata.items())
