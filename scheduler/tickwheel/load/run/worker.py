"""A simulated worker: it chooses a queue by its selector, takes batches from it, and sleeps where others work.

The work is planned with the message. A batch is run one message after the other; finished ones are completed together
where that is soon, as workers do. Leases are extended while it runs. A worker is a closed loop, as real ones are: what
it does next depends on what it was given.
"""

import asyncio
from collections.abc import Generator
from contextlib import suppress
from datetime import timedelta
from time import monotonic

from tickwheel import LeaseLost, QueueBlocked, TickwheelError, aio
from tickwheel.load.capacity.selector import make_selector
from tickwheel.load.run import payload
from tickwheel.load.run.measurements import Measurements
from tickwheel.load.scenario.scenario import QueueLoad, Scenario, WorkerGroup

# What is done by then is completed in one call.
_COMPLETE_INTERVAL_S = 0.05
# After an error, so that a server that is away is not asked without a pause.
_RETRY_S = 0.2


class Worker:
    """One of a group. ``start`` is when the run begins, by this host's monotonic clock."""

    def __init__(
        self,
        scenario: Scenario,
        group: WorkerGroup,
        name: str,
        tickwheel: aio.Tickwheel,
        measurements: Measurements,
        start: float,
    ) -> None:
        self._selector = make_selector(group, scenario.queues)
        self._scenario = scenario
        self._group = group
        self._name = name
        self.tickwheel = tickwheel
        self.measurements = measurements
        self._start = start

    def now(self) -> float:
        """Real seconds since the run began."""
        return monotonic() - self._start

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                await self._turn()
            except QueueBlocked:
                await asyncio.sleep(_RETRY_S)
            except TickwheelError as error:
                self.measurements.error(error)
                await asyncio.sleep(_RETRY_S)

    async def _turn(self) -> None:
        """One queue, for as many batches as it is given."""
        queue, batch = await self._select()
        if not batch:
            batch = await self._wait(queue)
        for left in range(queue.iterations, 0, -1):
            if not batch:
                return
            await self.work(queue, batch)
            batch = await self._fetch(queue) if left > 1 else []

    async def _select(self) -> tuple[QueueLoad, list[aio.Message]]:
        """The selector's choice. It is asked whether a queue has work by taking a batch from it."""
        selection = self._selector.select_queue()
        if not isinstance(selection, Generator):
            return selection, await self._fetch(selection)
        batch: list[aio.Message] = []
        try:
            candidate = next(selection)
            while True:
                batch = await self._fetch(candidate)
                candidate = selection.send(bool(batch))
        except StopIteration as chosen:
            return chosen.value, batch

    async def _fetch(self, queue: QueueLoad) -> list[aio.Message]:
        """A batch if there is one now."""
        began = monotonic()
        messages = await self._dequeue(queue, None)
        self.measurements.latency_at("dequeue" if messages else "dequeue empty", monotonic() - began, self.now())
        return messages

    async def _wait(self, queue: QueueLoad) -> list[aio.Message]:
        """The first messages that come while it waits at an empty queue."""
        return await self._dequeue(queue, timedelta(seconds=self._scenario.long_poll(queue)))

    async def _dequeue(self, queue: QueueLoad, wait: timedelta | None) -> list[aio.Message]:
        messages = await self.tickwheel.queue(queue.name).dequeue(
            queue.batch, where=self._group.where or None, wait=wait, worker=self._name
        )
        self.measurements.counts["dequeue calls"] += 1
        self.record_delivery(queue, messages)
        return messages

    def record_delivery(self, queue: QueueLoad, messages: list[aio.Message]) -> None:
        """Messages have come."""
        moment = self.now()
        for message in messages:
            self.measurements.counts["delivered"] += 1
            self.measurements.add(f"delivered/{queue.name}", moment)
            if message.attempt == 1:
                due_s, _, _ = payload.unpack(message.payload)
                self.measurements.latency_at(f"wait/{queue.name}", moment - due_s, moment)

    async def work(self, queue: QueueLoad, batch: list[aio.Message]) -> None:
        """Run a batch: sleep, complete or fail each, hold the leases of all."""
        done: list[aio.Message] = []
        left = list(batch)
        long = sum(payload.unpack(message.payload)[1] for message in batch) > queue.lease_s / 4
        heartbeat = asyncio.create_task(self._extend(queue, left)) if long else None
        finished = self.now()
        try:
            for message in batch:
                due_s, run_s, failures = payload.unpack(message.payload)
                began = self.now()
                if message.attempt == 1:
                    self.measurements.latency_at(f"start/{queue.name}", began - due_s, began)
                if run_s:
                    await asyncio.sleep(run_s)
                    self.measurements.latency("overrun", self.now() - began - run_s)
                self.measurements.span(f"busy/{self._group.name}", began, self.now())
                if message.attempt <= failures:
                    await self._fail(message)
                    left.remove(message)
                else:
                    done.append(message)
                if self.now() - finished >= _COMPLETE_INTERVAL_S:
                    await self._complete(queue, done, left)
                    finished = self.now()
            await self._complete(queue, done, left)
        finally:
            if heartbeat is not None:
                heartbeat.cancel()

    async def _complete(self, queue: QueueLoad, done: list[aio.Message], left: list[aio.Message]) -> None:
        if not done:
            return
        began, count = monotonic(), len(done)
        try:
            await self.tickwheel.queue(queue.name).complete_many(done)
        except LeaseLost as error:
            self.measurements.counts["leases lost"] += len(error.lost)
            count -= len(error.lost)
        self.measurements.latency_at("complete", monotonic() - began, self.now())
        self.measurements.counts["completed"] += count
        self.measurements.add(f"completed/{queue.name}", self.now(), count)
        for message in done:
            left.remove(message)
        done.clear()

    async def _fail(self, message: aio.Message) -> None:
        began = monotonic()
        try:
            await message.fail("planned by the scenario")
        except LeaseLost:
            self.measurements.counts["leases lost"] += 1
            return
        self.measurements.latency_at("fail", monotonic() - began, self.now())
        self.measurements.counts["failed attempts"] += 1

    async def _extend(self, queue: QueueLoad, leased: list[aio.Message]) -> None:
        """The heartbeat of what is held: none waits for its turn in a batch until its lease is over."""
        while True:
            await asyncio.sleep(queue.lease_s / 3)
            # Who has lost one hears of it at the end.
            with suppress(TickwheelError):
                await self.tickwheel.queue(queue.name).extend_many(list(leased), timedelta(seconds=queue.lease_s))
