"""What is deliverable of one queue, in memory: earliest deadline first, by filter, and one running for each value.

The same rules as the server's, for the simulator; they need no server's care.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Task:
    """A message that a simulated worker gets. Times are seconds of the scenario."""

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
    """``filters`` are those that workers ask by; each is known by its place among them."""

    def __init__(self, filters: Sequence[Mapping[str, str]]) -> None:
        self._filters = filters
        # A message stands in the heap of every filter that it matches; one that was taken by another is skipped there.
        self._heaps: list[list[_Entry]] = [[] for _ in filters]
        self._running: set[str] = set()
        # Behind a running one of their value, by the filters that they match: only the first of each comes back.
        self._blocked: dict[str, dict[tuple[int, ...], list[_Entry]]] = {}
        self._number = 0

    def add(self, task: Task) -> tuple[int, ...]:
        """A message is deliverable; the filters that it matches."""
        self._number += 1
        matched = tuple(n for n, where in enumerate(self._filters) if _matches(where, task.metadata))
        self._push((task.deadline_s, self._number, task), matched)
        return matched

    def take(self, number: int, limit: int) -> list[Task]:
        """The most urgent ones that match a filter."""
        tasks: list[Task] = []
        while len(tasks) < limit and self.has(number):
            _, _, task = heapq.heappop(self._heaps[number])
            task.is_pending = False
            if task.value is not None:
                self._running.add(task.value)
            tasks.append(task)
        return tasks

    def has(self, number: int) -> bool:
        """Whether a filter would find something."""
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
        """Its run is over: the next of its value may be taken; the filters that match those."""
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
