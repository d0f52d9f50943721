"""Plans carried out with asyncio: the same as `sync_io`, with `await` where it waits."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

from redis.asyncio.connection import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from tickwheel.plan import Leave, Park, PassOn, Plan, Reply, Request, Round, Watch
from tickwheel.sync_io import ANSWER_S
from tickwheel.transport import (
    LOST_CONNECTION,
    Attempts,
    RedisError,
    ScriptMissing,
    TryLater,
    commands,
    interpret,
    log,
    sources,
)
from tickwheel.waiting import SWEEP_S, WaitList

T = TypeVar("T")
_CONFIRM_S = 5.0
_RECONNECT_S = 0.1


def pool(url: str, **options: Any) -> ConnectionPool:
    """Connections to one server, without redis-py's own retries."""
    settings = {
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": ANSWER_S,
        "socket_connect_timeout": ANSWER_S,
        "max_connections": 65_536,
    }
    return ConnectionPool.from_url(url, **settings | options)


class AsyncIO:
    """Runs plans against one server, on one event loop."""

    def __init__(
        self,
        connections: ConnectionPool,
        where: str,
        seconds: float,
        replicas: int,
        revive: Callable[[], None],
    ) -> None:
        self._pool: Any = connections
        self._where = where
        self._seconds = seconds
        self._revive = revive
        self._replicas = replicas
        self.wakes: WakeTask | None = None

    async def run(self, plan: Plan[T]) -> T:
        """Carry a plan out, step by step."""
        answer: Any = None
        error: BaseException | None = None
        task = asyncio.current_task()
        assert task is not None
        heard = task.cancelling()
        while True:
            try:
                step = plan.send(answer) if error is None else plan.throw(error)
            except StopIteration as done:
                result: T = done.value
                return result
            answer = error = None
            try:
                answer = await self._do(step)
            except BaseException as raised:
                # The plan hears of it, a cancellation too, so that it leaves its waiter and its session in order.
                error = raised
            if task.cancelling() > heard:
                # Also one that was lost on the way: redis-py sends under `wait_for`, which before Python 3.12 returns
                # as if nothing were when the cancellation and the end of the sending fall together.
                heard = task.cancelling()
                if not isinstance(error, asyncio.CancelledError):
                    error = asyncio.CancelledError()

    async def _do(self, step: object) -> Any:
        match step:
            case Round(requests):
                return await self.round(requests)
            case Watch(queue):
                assert self.wakes is not None
                return await self.wakes.watch(queue)
            case Park(waiter, seconds):
                await waiter.park(seconds)
            case PassOn(waiter):
                waiter.pass_on()
            case Leave(waiter):
                waiter.leave()
        return None

    async def round(self, requests: list[Request]) -> list[Reply]:
        """Send requests in one pipeline, again those that got no answer, until they have one or the time is up."""
        replies: list[Reply | None] = [None] * len(requests)
        attempts = Attempts(self._where, self._seconds)
        while True:
            waiting = [n for n, reply in enumerate(replies) if reply is None]
            try:
                await self._attempt(requests, waiting, replies, attempts)
                return replies  # type: ignore[return-value]  # all are answered
            except ScriptMissing:
                await self._load(requests)
            except (TryLater, *LOST_CONNECTION) as error:
                await asyncio.sleep(attempts.pause(error))
                if not isinstance(error, TryLater):
                    await asyncio.to_thread(self._revive)

    async def _attempt(
        self, requests: list[Request], waiting: list[int], replies: list[Reply | None], attempts: Attempts
    ) -> None:
        resent = attempts.sent
        trouble: Exception | None = None
        todo = [commands(requests[n], resent, self._replicas) for n in waiting]
        connection = await self._pool.get_connection()
        try:
            packed = connection.pack_commands([command for each in todo for command in each])
            attempts.sent = True
            await connection.send_packed_command(packed)
            for n, each in zip(waiting, todo, strict=True):
                answers = [await _read(connection) for _ in each]
                try:
                    replies[n] = interpret(requests[n], answers, resent, self._replicas)
                except Exception as error:
                    trouble = trouble or error
            if trouble is not None:
                raise trouble
        except BaseException as error:
            if isinstance(error, ScriptMissing | TryLater):
                attempts.sent = resent
            elif error is not trouble:
                await connection.disconnect(nowait=True)
            raise
        finally:
            await self._pool.release(connection)

    async def _load(self, requests: list[Request]) -> None:
        loads = [Request(0, command=("SCRIPT", "LOAD", source)) for source in sources(requests, self._replicas)]
        await self.round(loads)

    async def close(self) -> None:
        """Close every connection."""
        if self.wakes is not None:
            await self.wakes.stop()
        await self._pool.disconnect()


async def _read(connection: Any) -> object:
    try:
        return await connection.read_response()
    except LOST_CONNECTION:
        raise
    except RedisError as error:
        return error


class TaskWaiter:
    """A task that sleeps until its queue has something for it."""

    def __init__(self, waiters: WaitList, queue: str) -> None:
        self._event = asyncio.Event()
        self._waiters = waiters
        self._waiter = waiters.add(queue, self._event.set)

    async def park(self, seconds: float) -> None:
        """Sleep until woken, or for so many seconds."""
        try:
            # Not wait_for: before Python 3.12 it loses a cancellation that comes together with the wake-up.
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            pass
        finally:
            self._event.clear()
        self._waiters.consume(self._waiter)

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
        self._task: asyncio.Task[None] | None = None

    async def watch(self, queue: str) -> TaskWaiter:
        """A waiter for the queue, once its subscription stands; without a server, one that only the sweep wakes."""
        confirmed = self._queues.get(queue)
        if confirmed is None:
            confirmed = self._queues[queue] = asyncio.Event()
            self._by_channel |= {channel.encode(): queue for channel in self._channels(queue)}
            if self._connection is not None:
                await self._subscribe(self._connection, [queue])
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="tickwheel-wake")
        try:
            async with asyncio.timeout(_CONFIRM_S):
                await confirmed.wait()
        except TimeoutError:
            log.warning("no subscription to queue %r yet: a dequeue waits for the sweep", queue)
        return TaskWaiter(self._waiters, queue)

    async def stop(self) -> None:
        """End the task. Who still waits sleeps to the end of its time."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self._listen()
            except LOST_CONNECTION as error:
                log.warning("wake-ups interrupted, subscribing again: %s", error)
                await asyncio.sleep(_RECONNECT_S)

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
            self._queues[queue].set()
        elif kind == b"smessage":
            self._waiters.wake(queue, int(data))
