"""Plans carried out with asyncio: the same as `sync_io`, with `await` where it waits."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from tickwheel.errors import TickwheelError
from tickwheel.plan import Leave, Park, PassOn, Plan, Reply, Request, Round, Servers, Watch
from tickwheel.redis.asyncio_pools import AsyncServerPools
from tickwheel.redis.replies import LOST_CONNECTION, UNANSWERED, Attempts, TryLater
from tickwheel.redis.round_trip import Delivery, Parcel, had_effect
from tickwheel.redis.wakeup_task import WakeTask
from tickwheel.runtime.log_throttle import Seldom
from tickwheel.runtime.process_guard import Gate

T = TypeVar("T")

_OPEN = "open a client of its own in each"
_CLOSE = "close it in its own, or end that loop first"


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
    """Runs plans against one server, or the servers of a cluster, on one event loop."""

    def __init__(
        self,
        servers: AsyncServerPools,
        where: str,
        seconds: float,
        replicas: int,
        revive: Callable[[], None],
    ) -> None:
        self._servers = servers
        self._where = where
        self._gate = Gate(where)
        self._seconds = seconds
        self._revive = revive
        self._replicas = replicas
        self._seldom = Seldom()
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
        # Whether a round of it has had an effect: then its call has, whatever becomes of the rounds to come.
        has_done = False
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
                answer = await self._do(step, has_done)
                has_done = has_done or (isinstance(step, Round) and had_effect(step.requests, answer))
            except BaseException as raised:
                # The plan hears of it, a cancellation too, so that it leaves its waiter and its session in order.
                error = raised
            if task.cancelling() > heard:
                # Also one that was lost on the way: redis-py connects under `wait_for`, which before Python 3.12
                # returns as if nothing were when the cancellation and the end of what it waits for fall together.
                heard = task.cancelling()
                if not isinstance(error, asyncio.CancelledError):
                    error = asyncio.CancelledError()

    async def _do(self, step: object, has_done: bool) -> Any:
        match step:
            case Round(requests, partly):
                return await self.round(requests, has_done, partly)
            case Servers():
                return await self._one_shard_each()
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

    async def round(self, requests: list[Request], has_done: bool = False, partly: bool = False) -> list[Reply]:
        """Send requests, a pipeline to each server, again those without an answer, until all have one or time is up.

        ``has_done``: the call that they belong to has had an effect before. ``partly`` as a Round's.
        """
        delivery = Delivery(requests, self._servers.topology, self._replicas, has_done=has_done, partly=partly)
        attempts = Attempts(self._where, self._seconds, self._seldom)
        self._gate.check(has_done)
        while True:
            trouble = await self._attempt(delivery)
            if delivery.is_done:
                if None not in delivery.replies:
                    attempts.answered()
                return delivery.replies  # type: ignore[return-value]  # all are answered
            self._gate.check(delivery.in_doubt)
            if trouble is not None:
                await asyncio.sleep(attempts.pause(trouble, delivery.in_doubt))
                if not isinstance(trouble, TryLater):
                    await asyncio.to_thread(self._revive)

    async def _attempt(self, delivery: Delivery) -> Exception | None:
        """Send all that is not answered, and read what comes; why to wait before the next attempt, if at all."""
        try:
            if delivery.map_is_old:
                await self._servers.read_map(delivery.silent)
                delivery.map_is_read()
        except UNANSWERED as error:
            return error
        under_way: list[tuple[Parcel, Any]] = []
        try:
            for parcel in delivery.parcels():
                await self._send(delivery, parcel, under_way)
            while under_way:
                await self._receive(delivery, *under_way[0])
                under_way.pop(0)
        finally:
            # What was not read to its end is of no use to anybody else.
            for parcel, connection in under_way:
                await connection.disconnect(nowait=True)
                await self._servers.give(parcel.server, connection)
        return delivery.next()

    async def _send(self, delivery: Delivery, parcel: Parcel, under_way: list[tuple[Parcel, Any]]) -> None:
        try:
            connection = await self._servers.take(parcel.server)
        except UNANSWERED as error:
            delivery.lost(parcel, error)
            return
        under_way.append((parcel, connection))
        try:
            packed = connection.pack_commands(parcel.commands())
            delivery.sending(parcel)
            await self._servers.send(connection, packed)
        except LOST_CONNECTION as error:
            delivery.lost(parcel, error)
            under_way.pop()
            await connection.disconnect(nowait=True)
            await self._servers.give(parcel.server, connection)

    async def _receive(self, delivery: Delivery, parcel: Parcel, connection: Any) -> None:
        try:
            for _ in parcel.loads:
                delivery.loaded(await self._servers.answer(connection))
            for n, sent in parcel.requests:
                delivery.answered(parcel, n, sent, [await self._servers.answer(connection) for _ in sent])
        except LOST_CONNECTION as error:
            delivery.lost(parcel, error)
            await connection.disconnect(nowait=True)
        await self._servers.give(parcel.server, connection)

    async def _one_shard_each(self) -> dict[str, int]:
        if self._servers.topology.is_cluster:
            # The map is there once anything was answered.
            await self.round([Request(0, command=("PING",))])
        return self._servers.topology.one_shard_each()

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
        await self._servers.close()
