"""Dequeue calls at planned times: an open loop, so their latency counts from when they were planned.

For systems whose workers ask again and again, as published figures tell of them. What a call finds is worked like any
other batch.
"""

import asyncio
from collections import Counter

from tickwheel import TickwheelError
from tickwheel.load.run.worker import Worker
from tickwheel.load.scenario.scenario import QueueLoad, Scenario

# Calls that wait for their answers, in one process. Beyond it the loop waits too, which is told as lag.
_CALLS_MOST = 100


class Poller:
    """Asks for one queue on behalf of a worker that is never busy."""

    def __init__(self, scenario: Scenario, queue: QueueLoad, worker: Worker, part: int, parts: int) -> None:
        """``part`` of ``parts`` processes that share the calls."""
        assert queue.polls is not None
        self._queue = queue
        self._worker = worker
        self._batch = queue.polls.batch
        self._together = queue.polls.together
        self._every_s = self._together * parts / (queue.polls.per_s * scenario.speed_up)
        self._first_s = part * self._every_s / parts
        self._begun = 0
        self._room = asyncio.Semaphore(_CALLS_MOST)
        self._under_way: set[asyncio.Task[None]] = set()
        self._unanswered: Counter[float] = Counter()
        """By when they were planned."""

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            while True:
                await asyncio.sleep(max(0.0, self._planned_s - self._worker.now()))
                while self._planned_s <= self._worker.now():
                    await self._room.acquire()
                    self._begin(self._planned_s)
                    self._begun += 1
        finally:
            for task in self._under_way:
                task.cancel()
            self._give_up()

    @property
    def _planned_s(self) -> float:
        """When the next call is to be made."""
        return self._first_s + self._begun // self._together * self._every_s

    def _begin(self, planned_s: float) -> None:
        self._worker.meter.latency_at("poll lag", self._worker.now() - planned_s, planned_s)
        task = asyncio.create_task(self._poll(planned_s))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _poll(self, planned_s: float) -> None:
        worker = self._worker
        self._unanswered[planned_s] += 1
        try:
            found = await worker.tickwheel.queue(self._queue.name).dequeue(self._batch)
        except TickwheelError as error:
            worker.meter.error(error)
            self._answered("dequeue", planned_s)
            return
        finally:
            self._room.release()
        worker.meter.counts["dequeue calls"] += 1
        self._answered("dequeue" if found else "dequeue empty", planned_s)
        if found:
            worker.delivered(self._queue, found)
            try:
                await worker.work(self._queue, found)
            except TickwheelError as error:
                worker.meter.error(error)

    def _answered(self, name: str, planned_s: float) -> None:
        self._unanswered[planned_s] -= 1
        if not self._unanswered[planned_s]:
            del self._unanswered[planned_s]
        moment = self._worker.now()
        self._worker.meter.latency_at(name, moment - planned_s, moment)

    def _give_up(self) -> None:
        """What was planned and has no answer is told: it would have taken so long at least."""
        while self._planned_s <= self._worker.now():
            self._unanswered[self._planned_s] += 1
            self._begun += 1
        self._worker.meter.counts["polls unanswered"] += self._unanswered.total()
        for planned_s in list(self._unanswered.elements()):
            self._answered("dequeue", planned_s)
