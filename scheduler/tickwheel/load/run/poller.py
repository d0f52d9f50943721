"""Dequeue calls at planned times: an open loop, whose latencies are measured from the planned times.

Scenarios use such calls to model a system by its published rate of polls. The messages that a call returns are
processed like any other batch.
"""

import asyncio
from collections import Counter

from tickwheel import TickwheelError
from tickwheel.load.run.worker import Worker
from tickwheel.load.scenario.scenario import QueueLoad, Scenario

# Maximum calls in flight of one poller. At the limit, the loop waits, and the delay is recorded as lag.
_CALLS_MAX = 100


class Poller:
    """Polls one queue at planned times, for a worker that takes new messages even while it runs others."""

    def __init__(self, scenario: Scenario, queue: QueueLoad, worker: Worker, part: int, parts: int) -> None:
        """Create one of ``parts`` pollers that share the calls, each in its own process; ``part`` counts from 0."""
        assert queue.polls is not None
        self._queue = queue
        self._worker = worker
        self._batch = queue.polls.batch
        self._together = queue.polls.together
        self._every_s = self._together * parts / (queue.polls.per_s * scenario.speed_up)
        self._first_s = part * self._every_s / parts
        self._started = 0
        self._permits = asyncio.Semaphore(_CALLS_MAX)
        self._in_flight: set[asyncio.Task[None]] = set()
        self._unanswered: Counter[float] = Counter()
        """Calls without an answer, by planned time."""

    async def run(self) -> None:
        """Poll until cancelled, or until a worker of this process has received messages of another program."""
        try:
            while not self._worker.has_foreign:
                await asyncio.sleep(max(0.0, self._planned_s - self._worker.now()))
                while self._planned_s <= self._worker.now():
                    await self._permits.acquire()
                    self._begin(self._planned_s)
                    self._started += 1
            # The calls in flight may receive messages of the other program, too, and release them.
            await asyncio.gather(*self._in_flight)
        finally:
            for task in self._in_flight:
                task.cancel()
            self._record_unanswered()

    @property
    def _planned_s(self) -> float:
        """Return the planned time of the next call."""
        return self._first_s + self._started // self._together * self._every_s

    def _begin(self, planned_s: float) -> None:
        self._worker.measurements.latency_at("poll lag", self._worker.now() - planned_s, planned_s)
        task = asyncio.create_task(self._poll(planned_s))
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)

    async def _poll(self, planned_s: float) -> None:
        worker = self._worker
        self._unanswered[planned_s] += 1
        try:
            messages = await worker.tickwheel.queue(self._queue.name).dequeue(self._batch)
        except TickwheelError as error:
            worker.measurements.error(error)
            self._record_answer("dequeue", planned_s)
            return
        finally:
            self._permits.release()
        worker.measurements.counts["dequeue calls"] += 1
        self._record_answer("dequeue" if messages else "dequeue empty", planned_s)
        if messages:
            try:
                await worker.accept(self._queue, messages)
                await worker.work(self._queue, messages)
            except TickwheelError as error:
                worker.measurements.error(error)

    def _record_answer(self, name: str, planned_s: float) -> None:
        self._unanswered[planned_s] -= 1
        if not self._unanswered[planned_s]:
            del self._unanswered[planned_s]
        moment = self._worker.now()
        self._worker.measurements.latency_at(name, moment - planned_s, moment)

    def _record_unanswered(self) -> None:
        """Record calls that were planned and have no answer, with the time that they have taken so far."""
        while self._planned_s <= self._worker.now():
            self._unanswered[self._planned_s] += 1
            self._started += 1
        self._worker.measurements.counts["polls unanswered"] += self._unanswered.total()
        for planned_s in list(self._unanswered.elements()):
            self._record_answer("dequeue", planned_s)
