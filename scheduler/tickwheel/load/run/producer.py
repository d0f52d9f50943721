"""The producers of a run: an open loop, free of coordinated omission.

The seed determines when each message is sent, and nothing that the server does changes the plan. A latency is
measured from the planned time, so if the server stalls, the latency of every message planned during the stall grows.
The *lag* is the delay of this loop itself. The report lists the lag next to the latencies.
"""

import asyncio
import heapq
import math
from collections.abc import Coroutine
from datetime import timedelta
from time import monotonic

from tickwheel import InvalidTransition, NewMessage, TickwheelError, aio
from tickwheel.load.run import payload
from tickwheel.load.run.batches import Batches
from tickwheel.load.run.measurements import Measurements
from tickwheel.load.scenario.arrivals import Arrival, plan_arrivals
from tickwheel.load.scenario.scenario import Scenario

# Maximum calls in flight. At the limit, the loop waits, and the delay is recorded as lag.
_CALLS_MAX = 64
# Longest sleep of the loop, so that it notices a stop even if nothing is planned.
_IDLE_S = 0.1


class Producer:
    """Sends the planned messages. ``start`` is the start of the run on this host's monotonic clock."""

    def __init__(
        self, scenario: Scenario, tickwheel: aio.Tickwheel, measurements: Measurements, start: float, prefix: str
    ) -> None:
        self._scenario = scenario
        self._tickwheel = tickwheel
        self._measurements = measurements
        self._start = start
        self._prefix = prefix
        self._exclusive = {queue.name: queue.exclusive.key for queue in scenario.queues if queue.exclusive}
        self._sizes = {queue.name: queue.payload_bytes for queue in scenario.queues}
        self._plan = plan_arrivals(scenario)
        self._upcoming = next(self._plan, None)
        self._cancels: list[tuple[float, str, str, str]] = []
        """A heap of time, id, queue and exclusive value."""
        self._enqueues: Batches[str, tuple[str, Arrival]] = Batches(scenario.producer_batch, scenario.linger_s)
        self._cancelling: Batches[tuple[str, str], str] = Batches(scenario.producer_batch, scenario.linger_s)
        self._permits = asyncio.Semaphore(_CALLS_MAX)
        self._in_flight: set[asyncio.Task[None]] = set()
        self.sent = 0
        self.is_done = False

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until everything planned is sent, including cancels, or until ``stopping`` is set."""
        while not stopping.is_set():
            moment = self._now()
            self._take_arrivals(moment)
            self._take_cancels(moment)
            for queue, messages in self._enqueues.ready(moment):
                await self._begin(self._enqueue(queue, messages))
            for (queue, value), ids in self._cancelling.ready(moment):
                await self._begin(self._cancel(queue, value, ids))
            if self._is_over():
                break
            await asyncio.sleep(max(0.0, min(self._next_s(), moment + _IDLE_S) - self._now()))
        if self._in_flight:
            await asyncio.wait(self._in_flight)
        self.is_done = True

    def _now(self) -> float:
        return monotonic() - self._start

    def _is_over(self) -> bool:
        return not (self._upcoming or self._cancels or self._enqueues or self._cancelling or self._in_flight)

    def _next_s(self) -> float:
        """Return the time of the next planned action."""
        upcoming_s = self._scenario.to_real_s(self._upcoming.at_s) if self._upcoming else math.inf
        cancel_s = self._cancels[0][0] if self._cancels else math.inf
        return min(upcoming_s, cancel_s, self._enqueues.next_s, self._cancelling.next_s)

    def _take_arrivals(self, moment: float) -> None:
        scenario = self._scenario
        while self._upcoming is not None and (at_s := scenario.to_real_s(self._upcoming.at_s)) <= moment:
            if self.sent == scenario.max_messages:
                self._upcoming = None
                return
            self.sent += 1
            self._enqueues.add(self._upcoming.queue, at_s, (f"{self._prefix}-{self.sent}", self._upcoming))
            self._measurements.latency_at("lag", moment - at_s, at_s)
            self._upcoming = next(self._plan, None)

    def _take_cancels(self, moment: float) -> None:
        while self._cancels and self._cancels[0][0] <= moment:
            planned_s, id_, queue, value = heapq.heappop(self._cancels)
            self._cancelling.add((queue, value), planned_s, id_)
            self._measurements.latency_at("lag", moment - planned_s, planned_s)

    async def _begin(self, call: Coroutine[object, object, None]) -> None:
        """Start a call, after waiting for a free permit."""
        await self._permits.acquire()
        task = asyncio.create_task(call)
        self._in_flight.add(task)
        task.add_done_callback(self._on_call_end)

    def _on_call_end(self, task: asyncio.Task[None]) -> None:
        self._in_flight.discard(task)
        self._permits.release()

    async def _enqueue(self, queue: str, batch: list[tuple[float, tuple[str, Arrival]]]) -> None:
        messages = [self._message(at_s, id_, arrival) for at_s, (id_, arrival) in batch]
        self._measurements.counts["enqueue calls"] += 1
        try:
            await self._tickwheel.queue(queue).enqueue_many(messages)
        except TickwheelError as error:
            self._measurements.error(error)
            self._measurements.counts["enqueue errors"] += len(batch)
            return
        finally:
            self._record_answer("enqueue", [at_s for at_s, _ in batch])
        moment = self._now()
        self._measurements.counts["enqueued"] += len(batch)
        for at_s, (id_, arrival) in batch:
            self._measurements.add("enqueued", moment)
            if arrival.cancel_s is not None:
                value = (arrival.metadata or {})[self._exclusive[queue]] if queue in self._exclusive else ""
                heapq.heappush(self._cancels, (at_s + self._scenario.to_real_s(arrival.cancel_s), id_, queue, value))

    async def _cancel(self, name: str, value: str, batch: list[tuple[float, str]]) -> None:
        queue, ids, too_late = self._tickwheel.queue(name), [id_ for _, id_ in batch], 0
        self._measurements.counts["cancel calls"] += 1
        try:
            try:
                await queue.cancel_many(ids, value or None)
            finally:
                self._record_answer("cancel", [planned_s for planned_s, _ in batch])
        except InvalidTransition:
            # At least one message can no longer be cancelled. The other messages of the batch are cancelled.
            too_late = sum([await _is_too_late(queue, id_, value or None) for id_ in ids])
        except TickwheelError as error:
            self._measurements.error(error)
            self._measurements.counts["cancel errors"] += len(batch)
            return
        self._measurements.counts["cancelled"] += len(batch) - too_late
        self._measurements.counts["cancels too late"] += too_late

    def _record_answer(self, name: str, planned: list[float]) -> None:
        """Record the latency of a call, also of a failed one: otherwise an overloaded server would appear fast."""
        moment = self._now()
        for planned_s in planned:
            self._measurements.latency_at(name, moment - planned_s, moment)

    def _message(self, at_s: float, id_: str, arrival: Arrival) -> NewMessage:
        real = self._scenario.to_real_s
        due_s = real(arrival.due_s)
        content = payload.pack(due_s, real(arrival.run_s), arrival.failures, self._sizes[arrival.queue])
        # A message that is sent late keeps its planned due time.
        delay = timedelta(seconds=due_s - self._now()) if arrival.delay_s else None
        ahead = None
        if arrival.deadline_s is not None:
            ahead = timedelta(seconds=due_s - self._now() + real(arrival.deadline_s))
        return NewMessage(
            content,
            id=id_,
            delay=None if delay is None else max(delay, timedelta()),
            deadline=ahead,
            metadata=arrival.metadata,
        )


async def _is_too_late(queue: aio.Queue, id_: str, value: str | None) -> bool:
    """Return whether a message can no longer be cancelled. Cancelling a cancelled message again changes nothing."""
    try:
        await queue.cancel(id_, value)
    except TickwheelError:
        return True
    return False
