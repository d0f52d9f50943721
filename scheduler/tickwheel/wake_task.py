"""Hears wake-ups for the tasks of an event loop: one connection, one task, started by the first that waits."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from redis.asyncio.connection import ConnectionPool

from tickwheel.transport import UNANSWERED, log, raise_refused, refused
from tickwheel.waiting import CONFIRM_S, RECONNECT_S, REFUSED_S, SWEEP_S, WaitList


class TaskWaiter:
    """A task that sleeps until its queue has something for it."""

    def __init__(self, waiters: WaitList, queue: str, check: Callable[[], None]) -> None:
        self._event = asyncio.Event()
        self._waiters = waiters
        self._check = check
        self._waiter = waiters.add(queue, self._event.set)

    async def park(self, seconds: float) -> None:
        """Sleep until woken, or for so many seconds. Raises what the server refused the subscription with."""
        try:
            # Not wait_for: before Python 3.12 it loses a cancellation that comes together with the wake-up.
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            pass
        finally:
            self._event.clear()
        self._waiters.consume(self._waiter)
        self._check()

    def pass_on(self) -> None:
        self._waiters.pass_on(self._waiter)

    def leave(self) -> None:
        self._waiters.remove(self._waiter)


class WakeTask:
    """Subscribes to the wake channels of the queues that somebody waits for: one connection, one task."""

    def __init__(self, connections: ConnectionPool, channels: Callable[[str], list[str]]) -> None:
        self._pool: Any = connections
        self._channels = channels
        self._waiters = WaitList()
        self._queues: dict[str, asyncio.Event] = {}
        self._by_channel: dict[bytes, str] = {}
        self._connection: Any = None
        self._error: Exception | None = None
        self._task: asyncio.Task[None] | None = None

    async def watch(self, queue: str) -> TaskWaiter:
        """A waiter for the queue, once its subscription stands; without a server, one that only the sweep wakes.

        Raises Forbidden, or another TickwheelError, where the server refuses the subscription.
        """
        confirmed = self._queues.get(queue)
        if confirmed is None:
            confirmed = self._queues[queue] = asyncio.Event()
            self._by_channel |= {channel.encode(): queue for channel in self._channels(queue)}
            if self._connection is not None:
                await self._subscribe(self._connection, [queue])
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="tickwheel-wake")
        try:
            async with asyncio.timeout(CONFIRM_S):
                await confirmed.wait()
        except TimeoutError:
            log.warning("no subscription to queue %r yet: a dequeue waits for the sweep", queue)
        self._check()
        return TaskWaiter(self._waiters, queue, self._check)

    async def stop(self) -> None:
        """End the task, and wake everybody."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        for confirmed in self._queues.values():
            confirmed.set()
        self._waiters.wake_all()

    async def _run(self) -> None:
        while True:
            try:
                await self._listen()
            except UNANSWERED as error:
                log.warning("wake-ups interrupted, subscribing again: %s", error)
                self._error = error
                if refused(error) is None:
                    await asyncio.sleep(RECONNECT_S)
                    continue
                for confirmed in self._queues.values():
                    confirmed.set()
                self._waiters.wake_all()
                await asyncio.sleep(REFUSED_S)

    def _check(self) -> None:
        raise_refused(self._error)

    async def _listen(self) -> None:
        connection = await self._pool.get_connection()
        try:
            await self._subscribe(connection, list(self._queues))
            self._connection = connection
            # What was published while nobody listened is lost: let everybody look.
            self._waiters.wake_all()
            swept = time.monotonic()
            reading: asyncio.Future[Any] = asyncio.ensure_future(connection.read_response())
            try:
                while True:
                    await asyncio.wait([reading], timeout=max(swept + SWEEP_S - time.monotonic(), 0))
                    if reading.done():
                        self._hear(reading.result())
                        reading = asyncio.ensure_future(connection.read_response())
                    if time.monotonic() - swept >= SWEEP_S:
                        self._waiters.sweep()
                        swept = time.monotonic()
            finally:
                reading.cancel()
        finally:
            self._connection = None
            await connection.disconnect(nowait=True)
            await self._pool.release(connection)

    async def _subscribe(self, connection: Any, queues: list[str]) -> None:
        # One channel a command: channels of several shards lie in several slots.
        for queue in queues:
            for channel in self._channels(queue):
                await connection.send_command("SSUBSCRIBE", channel)

    def _hear(self, message: Any) -> None:
        kind, channel, data = message
        queue = self._by_channel[channel]
        if kind == b"ssubscribe":
            self._error = None
            self._queues[queue].set()
        elif kind == b"smessage":
            self._waiters.wake(queue, int(data))
