# Generated from asyncio_executor.py by `make format` (tests/support/generate_blocking.py). Do not edit.

"""Runs plans with blocking sockets, on redis-py's connections: one pipeline for each round and server."""

import time
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
from tickwheel.redis.pools import ConnectionPools, read_answer
from tickwheel.redis.replies import CONNECTION_ERRORS, LOST_CONNECTION, TemporaryError
from tickwheel.redis.retry_budget import RetryBudget
from tickwheel.redis.round_trip import RoundTrip, ServerBatch, had_effect
from tickwheel.redis.wakeup_thread import WakeupThread
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.runtime.process_guard import ProcessGuard

T = TypeVar("T")


class RedisExecutor:
    """Runs plans against one server, or the servers of a cluster. Thread-safe."""

    def __init__(
        self,
        servers: ConnectionPools,
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
        self.wakeups: WakeupThread | None = None

    @property
    def owned_by_this_process(self) -> bool:
        """Whether this process created the executor. False in a process that was forked afterwards."""
        return self._process_guard.owned_by_this_process

    def run(
        self,
        plan: Plan[T],
        effects: Effects | None = None,
        timeout_s: float | None = None,
        is_stopped: Callable[[], bool] | None = None,
    ) -> T:
        """Run a plan and return its result. ``effects``: those of the call, if the plan is a part of a call.

        ``timeout_s`` replaces the timeout of the client: each round of the plan is retried for this time.
        ``is_stopped`` ends the retries (`RetryBudget`).
        """
        plan_run = PlanRun(plan, self._display_url)
        # If an earlier round has changed data, the call has had an effect even if a later round fails.
        effects = effects or Effects()
        while (step := plan_run.next_step()) is not None:
            try:
                plan_run.answer = self._execute_step(step, effects.applied, timeout_s, is_stopped)
                if isinstance(step, Round):
                    effects.applied = effects.applied or had_effect(step.requests, plan_run.answer)
            except BaseException as raised:
                plan_run.error = raised
        return plan_run.result

    def _execute_step(
        self,
        step: object,
        already_applied: bool,
        timeout_s: float | None = None,
        is_stopped: Callable[[], bool] | None = None,
    ) -> Any:
        match step:
            case Round(requests, allow_partial):
                return self.round(requests, already_applied, allow_partial, timeout_s=timeout_s, is_stopped=is_stopped)
            case ListPrimaries():
                return self._list_primaries(timeout_s)
            case BeginSearch(search):
                assert self.wakeups is not None
                self.wakeups.begin_search(search)
            case EndSearch(search):
                assert self.wakeups is not None
                self.wakeups.end_search(search)
            case Subscribe(queue, where, caller, exists):
                assert self.wakeups is not None
                return self.wakeups.subscribe(queue, where, caller, exists=exists)
            case SubscribeJointly(queues, caller, closed):
                assert self.wakeups is not None
                return self.wakeups.subscribe_jointly(queues, caller, closed)
            case SubscribeToEnd(topic, field, caller):
                assert self.wakeups is not None
                return self.wakeups.subscribe_to_end(topic, field, caller)
            case AwaitWakeup(waiter, seconds):
                waiter.wait(seconds)
            case Pause(seconds):
                time.sleep(seconds)
            case ForwardWakeup(waiter):
                waiter.forward()
            case Unsubscribe(waiter):
                waiter.unsubscribe()
        return None

    def round(
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
        return self._complete(round_trip, already_applied, timeout_s, is_stopped)

    def _complete(
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
            problem = self._attempt(round_trip, answer_s)
            if round_trip.is_done:
                if None not in round_trip.replies:
                    retry_budget.on_answer()
                return round_trip.replies  # type: ignore[return-value]  # None only where the caller allows it
            self._process_guard.check(round_trip.in_doubt)
            if problem is not None:
                time.sleep(retry_budget.backoff_or_raise(problem, round_trip.in_doubt))
                retry_budget.raise_if_stopped()
                if self._restart_embedded_server is not None and not isinstance(problem, TemporaryError):
                    self._restart_embedded_server()

    def _attempt(self, round_trip: RoundTrip, answer_s: float) -> Exception | None:
        """Send all unanswered requests and read the answers, each within ``answer_s``.

        Return the problem that requires a pause before the next attempt, or None.
        """
        try:
            if round_trip.slots_stale:
                self._servers.refresh_slots(round_trip.unresponsive, answer_s)
                round_trip.mark_slots_fresh()
        except CONNECTION_ERRORS as error:
            return error
        in_flight: list[tuple[ServerBatch, Any]] = []
        try:
            for batch in round_trip.next_batches():
                self._send(round_trip, batch, in_flight, answer_s)
            while in_flight:
                self._receive(round_trip, *in_flight[0], answer_s)
                in_flight.pop(0)
        finally:
            # A connection with unread answers cannot be reused.
            for batch, connection in in_flight:
                connection.disconnect()
                self._servers.pool(batch.server).release(connection)
        return round_trip.finish_attempt()

    def _send(
        self, round_trip: RoundTrip, batch: ServerBatch, in_flight: list[tuple[ServerBatch, Any]], answer_s: float
    ) -> None:
        try:
            connection: Any = self._servers.acquire(batch.server, answer_s)
        except (*CONNECTION_ERRORS, *BROKEN_ANSWER) as error:
            round_trip.on_connection_lost(batch, error)
            return
        in_flight.append((batch, connection))
        try:
            packed = batch.pack()
            round_trip.mark_sent(batch)
            connection.send_packed_command(packed)
        except LOST_CONNECTION as error:
            round_trip.on_connection_lost(batch, error)
            in_flight.pop()
            connection.disconnect()
            self._servers.pool(batch.server).release(connection)

    def _receive(self, round_trip: RoundTrip, batch: ServerBatch, connection: Any, answer_s: float) -> None:
        try:
            for _ in batch.loads:
                round_trip.on_script_loaded(read_answer(connection))
            for n, sent in batch.requests:
                round_trip.on_answers(batch, n, sent, [read_answer(connection) for _ in sent])
        except LOST_CONNECTION as error:
            round_trip.on_connection_lost(batch, error)
            connection.disconnect()
        self._servers.pool(batch.server).release(connection)

    def _list_primaries(self, timeout_s: float | None = None) -> dict[str, int]:
        if self._servers.topology.is_cluster:
            # No request of this client may have noticed yet that a hash slot has moved.
            round_trip = RoundTrip([Request(0, command=("PING",))], self._servers.topology, self._replicas)
            round_trip.slots_stale = True
            self._complete(round_trip, timeout_s=timeout_s)
        return self._servers.topology.representative_shards()

    def close(self) -> None:
        """Close every connection and end every call. In a forked process, the parent's connections stay open."""
        self._process_guard.close()
        if not self._process_guard.owned_by_this_process:
            return
        if self.wakeups is not None:
            self.wakeups.stop()
        self._servers.close()
