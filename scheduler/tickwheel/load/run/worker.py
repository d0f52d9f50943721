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
from tickwheel.load.capacity.selector import selector
from tickwheel.load.run import payload
from tickwheel.load.run.measurements import Meter
from tickwheel.load.scenario.scenario import QueueLoad, Scenario, WorkerGroup

# What is done by then is completed in one call.
_TOGETHER_S = 0.05
# After an error, so that a server that is away is not asked without a pause.
_AGAIN_S = 0.2


class Worker:
    """One of a group. ``start`` is when the run begins, by this host's monotonic clock."""

    def __init__(
        self, scenario: Scenario, group: WorkerGroup, name: str, tickwheel: aio.Tickwheel, meter: Meter, start: float
    ) -> None:
        self._selector = selector(group, scenario.queues)
        self._scenario = scenario
        self._group = group
        self._name = name
        self.tickwheel = tickwheel
        self.meter = meter
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
                await asyncio.sleep(_AGAIN_S)
            except TickwheelError as error:
                self.meter.error(error)
                await asyncio.sleep(_AGAIN_S)

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
            asked = next(selection)
            while True:
                batch = await self._fetch(asked)
                asked = selection.send(bool(batch))
        except StopIteration as chosen:
            return chosen.value, batch

    async def _fetch(self, queue: QueueLoad) -> list[aio.Message]:
        """A batch if there is one now."""
        began = monotonic()
        found = await self._dequeue(queue, None)
        self.meter.latency_at("dequeue" if found else "dequeue empty", monotonic() - began, self.now())
        return found

    async def _wait(self, queue: QueueLoad) -> list[aio.Message]:
        """The first messages that come while it waits at an empty queue."""
        return await self._dequeue(queue, timedelta(seconds=self._scenario.long_poll(queue)))

    async def _dequeue(self, queue: QueueLoad, wait: timedelta | None) -> list[aio.Message]:
        found = await self.tickwheel.queue(queue.name).dequeue(
            queue.batch, where=self._group.where or None, wait=wait, worker=self._name
        )
        self.meter.counts["dequeue calls"] += 1
        self.delivered(queue, found)
        return found

    def delivered(self, queue: QueueLoad, found: list[aio.Message]) -> None:
        """Messages have come."""
        moment = self.now()
        for message in found:
            self.meter.counts["delivered"] += 1
            self.meter.add(f"delivered/{queue.name}", moment)
            if message.attempt == 1:
                due_s, _, _ = payload.unpacked(message.payload)
                self.meter.latency_at(f"wait/{queue.name}", moment - due_s, moment)

    async def work(self, queue: QueueLoad, batch: list[aio.Message]) -> None:
        """Run a batch: sleep, complete or fail each, hold the leases of all."""
        done: list[aio.Message] = []
        left = list(batch)
        long = sum(payload.unpacked(message.payload)[1] for message in batch) > queue.lease_s / 4
        heartbeat = asyncio.create_task(self._extend(queue, left)) if long else None
        finished = self.now()
        try:
            for message in batch:
                due_s, run_s, failures = payload.unpacked(message.payload)
                began = self.now()
                if message.attempt == 1:
                    self.meter.latency_at(f"start/{queue.name}", began - due_s, began)
                if run_s:
                    await asyncio.sleep(run_s)
                    self.meter.latency("overrun", self.now() - began - run_s)
                self.meter.span(f"busy/{self._group.name}", began, self.now())
                if message.attempt <= failures:
                    await self._fail(message)
                    left.remove(message)
                else:
                    done.append(message)
                if self.now() - finished >= _TOGETHER_S:
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
            self.meter.counts["leases lost"] += len(error.lost)
            count -= len(error.lost)
        self.meter.latency_at("complete", monotonic() - began, self.now())
        self.meter.counts["completed"] += count
        self.meter.add(f"completed/{queue.name}", self.now(), count)
        for message in done:
            left.remove(message)
        done.clear()

    async def _fail(self, message: aio.Message) -> None:
        began = monotonic()
        try:
            await message.fail("planned by the scenario")
        except LeaseLost:
            self.meter.counts["leases lost"] += 1
            return
        self.meter.latency_at("fail", monotonic() - began, self.now())
        self.meter.counts["failed attempts"] += 1

    async def _extend(self, queue: QueueLoad, held: list[aio.Message]) -> None:
        """The heartbeat of what is held: none waits for its turn in a batch until its lease is over."""
        while True:
            await asyncio.sleep(queue.lease_s / 3)
            # Who has lost one hears of it at the end.
            with suppress(TickwheelError):
                await self.tickwheel.queue(queue.name).extend_many(list(held), timedelta(seconds=queue.lease_s))
