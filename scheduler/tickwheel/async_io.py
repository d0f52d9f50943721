"""Plans carried out with asyncio: the same as `sync_io`, with `await` where it waits."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from redis.asyncio.connection import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from tickwheel.errors import TickwheelError
from tickwheel.gate import Gate
from tickwheel.plan import Leave, Park, PassOn, Plan, Reply, Request, Round, Watch
from tickwheel.sync_io import ANSWER_S
from tickwheel.transport import (
    LOST_CONNECTION,
    UNANSWERED,
    Attempts,
    RedisError,
    ScriptMissing,
    TryLater,
    commands,
    interpret,
    sources,
)
from tickwheel.wake_task import WakeTask

T = TypeVar("T")

_OPEN = "open a client of its own in each"
_CLOSE = "close it in its own, or end that loop first"


def pool(url: str, answer_s: float = ANSWER_S, **options: Any) -> ConnectionPool:
    """Connections to one server, without redis-py's own retries."""
    settings = {
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": min(ANSWER_S, answer_s),
        "socket_connect_timeout": min(ANSWER_S, answer_s),
        "max_connections": 65_536,
    }
    return ConnectionPool.from_url(url, **settings | options)


async def in_thread(work: Callable[[], T]) -> T:
    """What ``work`` returns or raises in a thread. It runs to its end, even where the task is cancelled meanwhile.

    The cancellation follows then. So whoever hears of it can undo what was done, and nothing is done afterwards.
    """
    # Not to_thread in a task: the end of `asyncio.run` cancels every task, and the thread would go on alone.
    return await to_its_end(asyncio.get_running_loop().run_in_executor(None, work))


async def to_its_end(running: asyncio.Future[T]) -> T:
    """What it returns or raises. A cancellation of the task that waits follows once it is done."""
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None or running.cancelled():
        return running.result()
    raise cancelled from running.exception()


def another_loop(where: str, *, closing: bool = False) -> TickwheelError:
    """The error of a client that is used, opened or closed in another event loop than its own."""
    return TickwheelError(
        f"the client of {where} belongs to the event loop that opened it, and this is another:"
        f" {_CLOSE if closing else _OPEN}"
    )


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
        self._gate = Gate(where)
        self._seconds = seconds
        self._revive = revive
        self._replicas = replicas
        self._loop = asyncio.get_running_loop()
        self.wakes: WakeTask | None = None

    @property
    def is_ours(self) -> bool:
        """Whether this process opened it, and was not forked from the one that did."""
        return self._gate.is_ours

    async def run(self, plan: Plan[T]) -> T:
        """Carry a plan out, step by step. Raises TickwheelError in another event loop than the client's."""
        # Connections and waiters are bound to it: what another loop starts on them would end in neither.
        if asyncio.get_running_loop() is not self._loop:
            # A forked process has another loop as well, and hears of the fork.
            self._gate.check()
            raise another_loop(self._where)
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
            self._gate.check(attempts.sent)
            try:
                await self._attempt(requests, waiting, replies, attempts)
                return replies  # type: ignore[return-value]  # all are answered
            except ScriptMissing:
                await self._load(requests)
            except UNANSWERED as error:
                self._gate.check(attempts.sent)
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
        """Close every connection, and end every call. Those of a process that this one was forked from stay.

        In its own event loop, or after that has ended: the client sees to it.
        """
        self._gate.close()
        # Connections of a loop that has ended went with it.
        if not self._gate.is_ours or self._loop.is_closed():
            return
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
