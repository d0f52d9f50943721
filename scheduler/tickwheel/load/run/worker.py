"""A simulated worker: chooses a queue by its selector, dequeues batches, and sleeps instead of working.

The payload of each message contains its planned run time. The messages of a batch run one after the other. Like a real
worker, the simulated worker completes messages that finish shortly after each other in one call, and extends leases
during a long run.
A worker is a closed loop: its next call depends on the last answer.

A message that is not of the run belongs to another program. The worker releases the message, and all workers of the
process stop, so that they do not lease the message again and again. The run then ends.
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
from tickwheel.model.validation import preview

# Messages finished within this interval are completed in one call.
_COMPLETE_INTERVAL_S = 0.05
# Pause after an error, so that an unreachable server is not called in a tight loop.
_RETRY_S = 0.2
# The counter of delivered messages that are not of the run.
FOREIGN = "foreign messages"


class ForeignMessages(TickwheelError):
    """A queue of the load has messages that the load did not enqueue."""


class Worker:
    """One worker of a group. ``start`` is the start of the run on this host's monotonic clock.

    ``prefix`` is the prefix of the ids of the run's messages.
    """

    def __init__(
        self,
        scenario: Scenario,
        group: WorkerGroup,
        name: str,
        tickwheel: aio.Tickwheel,
        measurements: Measurements,
        start: float,
        prefix: str,
    ) -> None:
        self._selector = make_selector(group, scenario.queues)
        self._scenario = scenario
        self._group = group
        self._name = name
        self.tickwheel = tickwheel
        self.measurements = measurements
        self._start = start
        self._prefix = prefix

    def now(self) -> float:
        """Return real seconds since the start of the run."""
        return monotonic() - self._start

    @property
    def has_foreign(self) -> bool:
        """Whether a worker of this process has received messages of another program."""
        return self.measurements.counts[FOREIGN] > 0

    async def run(self) -> None:
        """Work until cancelled, or until `has_foreign`."""
        while not self.has_foreign:
            try:
                await self._turn()
            except QueueBlocked:
                await asyncio.sleep(_RETRY_S)
            except TickwheelError as error:
                self.measurements.error(error)
                await asyncio.sleep(_RETRY_S)

    async def _turn(self) -> None:
        """Process up to ``iterations`` batches of one queue."""
        queue, batch = await self._select()
        if not batch:
            batch = await self._wait(queue)
        for left in range(queue.iterations, 0, -1):
            if not batch:
                return
            await self.work(queue, batch)
            batch = await self._fetch(queue) if left > 1 else []

    async def _select(self) -> tuple[QueueLoad, list[aio.Message]]:
        """Return the selector's choice and a batch.

        The worker dequeues from each candidate of the selector, and passes to the selector whether there were messages.
        """
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
        """Return a batch without waiting."""
        began = monotonic()
        messages = await self._dequeue(queue, None)
        self.measurements.latency_at("dequeue" if messages else "dequeue empty", monotonic() - began, self.now())
        return messages

    async def _wait(self, queue: QueueLoad) -> list[aio.Message]:
        """Wait at an empty queue, and return the first messages."""
        return await self._dequeue(queue, timedelta(seconds=self._scenario.long_poll(queue)))

    async def _dequeue(self, queue: QueueLoad, wait: timedelta | None) -> list[aio.Message]:
        if self.has_foreign:
            return []
        messages = await self.tickwheel.queue(queue.name).dequeue(
            queue.batch, where=self._group.where or None, wait=wait, worker=self._name
        )
        self.measurements.counts["dequeue calls"] += 1
        await self.accept(queue, messages)
        return messages

    async def accept(self, queue: QueueLoad, messages: list[aio.Message]) -> None:
        """Record messages that were delivered.

        If a message is not of the run, release all of them instead, and raise ForeignMessages. A release uses up no
        attempt, so the messages are unharmed.
        """
        moment = self.now()
        foreign = [message for message in messages if not self._is_ours(message)]
        if foreign:
            self.measurements.counts[FOREIGN] += len(foreign)
            try:
                await self.tickwheel.queue(queue.name).release_many(messages)
            except TickwheelError as error:
                self.measurements.error(error)
            raise ForeignMessages(
                f"queue {queue.name!r} has messages of other programs, such as {preview(foreign[0].id)}: use a"
                " namespace in which no other program uses the queues of the scenario"
            )
        for message in messages:
            self.measurements.counts["delivered"] += 1
            self.measurements.add(f"delivered/{queue.name}", moment)
            if message.attempt == 1:
                due_s, _, _ = payload.unpack(message.payload)
                self.measurements.latency_at(f"wait/{queue.name}", moment - due_s, moment)

    def _is_ours(self, message: aio.Message) -> bool:
        return message.id.startswith(self._prefix) and len(message.payload) >= payload.BYTES_MIN

    async def work(self, queue: QueueLoad, batch: list[aio.Message]) -> None:
        """Run a batch: for each message, sleep, then complete or fail the message. During a long run, extend leases."""
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
        """Extend the leases of a batch, so that no lease ends while its message waits for its turn."""
        while True:
            await asyncio.sleep(queue.lease_s / 3)
            # A lost lease is reported when its message is completed.
            with suppress(TickwheelError):
                await self.tickwheel.queue(queue.name).extend_many(list(leased), timedelta(seconds=queue.lease_s))
