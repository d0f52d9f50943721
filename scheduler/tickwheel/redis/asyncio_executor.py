"""Runs plans in one event loop, on redis-py's connections: one pipeline for each round and server."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from tickwheel.plan import (
    BROKEN_ANSWER,
    AwaitWakeup,
    BeginSearch,
    Effects,
    EndSearch,
    ForwardWakeup,
    ListPrimaries,
    Pause,
    Plan,
    PlanRun,
    Reply,
    Request,
    Round,
    Subscribe,
    SubscribeJointly,
    SubscribeToEnd,
    Unsubscribe,
)
from tickwheel.redis.asyncio_pools import AsyncConnectionPools
from tickwheel.redis.replies import CONNECTION_ERRORS, LOST_CONNECTION, TemporaryError
from tickwheel.redis.retry_budget import RetryBudget
from tickwheel.redis.round_trip import RoundTrip, ServerBatch, had_effect
from tickwheel.redis.wakeup_task import WakeupTask
from tickwheel.runtime.event_loop import wrong_loop_error
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.runtime.process_guard import ProcessGuard

T = TypeVar("T")


class AsyncRedisExecutor:
    """Runs plans against one server, or the servers of a cluster, on one event loop.

    asyncio: comments that begin with this word mark the code that the blocking executor does not have.
    """

    def __init__(
        self,
        servers: AsyncConnectionPools,
        display_url: str,
        seconds: float,
        replicas: int = 0,
        restart_embedded_server: Callable[[], None] | None = None,
    ) -> None:
        self._servers = servers
        self._display_url = display_url
        self._process_guard = ProcessGuard(display_url)
        self._seconds = seconds
        self._restart_embedded_server = restart_embedded_server
        self._replicas = replicas
        self._log_throttle = LogThrottle()
        self.wakeups: WakeupTask | None = None
        # asyncio: connections and waiters are bound to their loop.
        self._loop = asyncio.get_running_loop()

    @property
    def owned_by_this_process(self) -> bool:
        """Whether this process created the executor. False in a process that was forked afterwards."""
        return self._process_guard.owned_by_this_process

    async def run(
        self,
        plan: Plan[T],
        effects: Effects | None = None,
        timeout_s: float | None = None,
        is_stopped: Callable[[], bool] | None = None,
    ) -> T:
        """Run a plan and return its result. ``effects``: those of the call, if the plan is a part of a call.

        ``timeout_s`` replaces the timeout of the client: each round of the plan is retried for this time.
        ``is_stopped`` ends the retries (`RetryBudget`).

        asyncio: raises TickwheelError in another event loop than the client's.
        """
        # asyncio: a call from another loop would never end.
        if asyncio.get_running_loop() is not self._loop:
            # A forked process has another loop, too. The error about the fork is the more helpful one.
            self._process_guard.check()
            raise wrong_loop_error(self._display_url)
        task = asyncio.current_task()
        assert task is not None
        cancel_count = task.cancelling()

        plan_run = PlanRun(plan, self._display_url)
        # If an earlier round has changed data, the call has had an effect even if a later round fails.
        effects = effects or Effects()
        while (step := plan_run.next_step()) is not None:
            try:
                plan_run.answer = await self._execute_step(step, effects.applied, timeout_s, is_stopped)
                if isinstance(step, Round):
                    effects.applied = effects.applied or had_effect(step.requests, plan_run.answer)
            except BaseException as raised:
                plan_run.error = raised
            # asyncio: redis-py may have lost the cancellation, because it connects under `wait_for`. Before Python
            # 3.12, `wait_for` returns normally if the task is cancelled when the connection is ready.
            if task.cancelling() > cancel_count:
                cancel_count = task.cancelling()
                if not isinstance(plan_run.error, asyncio.CancelledError):
                    plan_run.error = asyncio.CancelledError()

        return plan_run.result

    async def _execute_step(
        self,
        step: object,
        already_applied: bool,
        timeout_s: float | None = None,
        is_stopped: Callable[[], bool] | None = None,
    ) -> Any:
        match step:
            case Round(requests, allow_partial):
                return await self.round(
                    requests, already_applied, allow_partial, timeout_s=timeout_s, is_stopped=is_stopped
                )
            case ListPrimaries():
                return await self._list_primaries(timeout_s)
            case BeginSearch(search):
                assert self.wakeups is not None
                await self.wakeups.begin_search(search)
            case EndSearch(search):
                assert self.wakeups is not None
                self.wakeups.end_search(search)
            case Subscribe(queue, where, caller, exists):
                assert self.wakeups is not None
                return await self.wakeups.subscribe(queue, where, caller, exists=exists)
            case SubscribeJointly(queues, caller, closed):
                assert self.wakeups is not None
                return await self.wakeups.subscribe_jointly(queues, caller, closed)
            case SubscribeToEnd(topic, field, caller):
                assert self.wakeups is not None
                return await self.wakeups.subscribe_to_end(topic, field, caller)
            case AwaitWakeup(waiter, seconds):
                await waiter.wait(seconds)
            case Pause(seconds):
                await asyncio.sleep(seconds)
            case ForwardWakeup(waiter):
                waiter.forward()
            case Unsubscribe(waiter):
                waiter.unsubscribe()
        return None

    async def round(
        self,
        requests: list[Request],
        already_applied: bool = False,
        allow_partial: bool = False,
        *,
        resent: bool = False,
        timeout_s: float | None = None,
        is_stopped: Callable[[], bool] | None = None,
    ) -> list[Reply]:
        """Send requests, one pipeline for each server, and return their replies.

        Requests without an answer are sent again until the timeout (``timeout_s``, or that of the client), or until
        ``is_stopped`` returns True. ``already_applied``: an earlier round of the same call has changed data.
        ``allow_partial``: see `Round`. ``resent``: another round may have executed the requests. Raises Unavailable if
        they are not sent again.
        """
        round_trip = RoundTrip(
            requests,
            self._servers.topology,
            self._replicas,
            already_applied=already_applied,
            allow_partial=allow_partial,
            resent=resent,
        )
        return await self._complete(round_trip, already_applied, timeout_s, is_stopped)

    async def _complete(
        self,
        round_trip: RoundTrip,
        already_applied: bool = False,
        timeout_s: float | None = None,
        is_stopped: Callable[[], bool] | None = None,
    ) -> list[Reply]:
        """Send the requests of a round trip until all are answered. See `round`."""
        seconds = self._seconds if timeout_s is None else timeout_s
        retry_budget = RetryBudget(self._display_url, seconds, self._log_throttle, is_stopped)
        self._process_guard.check(already_applied)
        while True:
            answer_s = self._servers.answer_s
            if seconds < self._seconds:
                answer_s = retry_budget.limit_answer(answer_s, self._replicas)
            problem = await self._attempt(round_trip, answer_s)
            if round_trip.is_done:
                if None not in round_trip.replies:
                    retry_budget.on_answer()
                return round_trip.replies  # type: ignore[return-value]  # None only where the caller allows it
            self._process_guard.check(round_trip.in_doubt)
            if problem is not None:
                await asyncio.sleep(retry_budget.backoff_or_raise(problem, round_trip.in_doubt))
                retry_budget.raise_if_stopped()
                if self._restart_embedded_server is not None and not isinstance(problem, TemporaryError):
                    await asyncio.to_thread(self._restart_embedded_server)

    async def _attempt(self, round_trip: RoundTrip, answer_s: float) -> Exception | None:
        """Send all unanswered requests and read the answers, each within ``answer_s``.

        Return the problem that requires a pause before the next attempt, or None.
        """
        try:
            if round_trip.slots_stale:
                await self._servers.refresh_slots(round_trip.unresponsive, answer_s)
                round_trip.mark_slots_fresh()
        except CONNECTION_ERRORS as error:
            return error
        in_flight: list[tuple[ServerBatch, Any]] = []
        try:
            for batch in round_trip.next_batches():
                await self._send(round_trip, batch, in_flight, answer_s)
            while in_flight:
                await self._receive(round_trip, *in_flight[0], answer_s)
                in_flight.pop(0)
        finally:
            # A connection with unread answers cannot be reused.
            for batch, connection in in_flight:
                await connection.disconnect(nowait=True)
                await self._servers.release(batch.server, connection)
        return round_trip.finish_attempt()

    async def _send(
        self, round_trip: RoundTrip, batch: ServerBatch, in_flight: list[tuple[ServerBatch, Any]], answer_s: float
    ) -> None:
        try:
            connection: Any = await self._servers.acquire(batch.server, answer_s)
        except (*CONNECTION_ERRORS, *BROKEN_ANSWER) as error:
            round_trip.on_connection_lost(batch, error)
            return
        in_flight.append((batch, connection))
        try:
            packed = batch.pack()
            round_trip.mark_sent(batch)
            await self._servers.send(connection, packed, answer_s)
        except LOST_CONNECTION as error:
            round_trip.on_connection_lost(batch, error)
            in_flight.pop()
            await connection.disconnect(nowait=True)
            await self._servers.release(batch.server, connection)

    async def _receive(self, round_trip: RoundTrip, batch: ServerBatch, connection: Any, answer_s: float) -> None:
        try:
            for _ in batch.loads:
                round_trip.on_script_loaded(await self._servers.answer(connection, answer_s))
            for n, sent in batch.requests:
                round_trip.on_answers(batch, n, sent, [await self._servers.answer(connection, answer_s) for _ in sent])
        except LOST_CONNECTION as error:
            round_trip.on_connection_lost(batch, error)
            await connection.disconnect(nowait=True)
        await self._servers.release(batch.server, connection)

    async def _list_primaries(self, timeout_s: float | None = None) -> dict[str, int]:
        if self._servers.topology.is_cluster:
            # No request of this client may have noticed yet that a hash slot has moved.
            round_trip = RoundTrip([Request(0, command=("PING",))], self._servers.topology, self._replicas)
            round_trip.slots_stale = True
            await self._complete(round_trip, timeout_s=timeout_s)
        return self._servers.topology.representative_shards()

    async def close(self) -> None:
        """Close every connection and end every call. In a forked process, the parent's connections stay open.

        asyncio: the client calls `close` in the executor's event loop, or after this loop has ended.
        """
        self._process_guard.close()
        if not self._process_guard.owned_by_this_process:
            return
        # asyncio: the connections of an ended loop are closed already.
        if self._loop.is_closed():
            return

        if self.wakeups is not None:
            await self.wakeups.stop()
        await self._servers.close()
