"""Receives the wake-ups for all dequeues of an event loop, in one asyncio task with one connection to each server.

The first dequeue that waits starts the task. It ends ten seconds after the last one.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, cast

from redis.exceptions import AskError

from tickwheel.errors import TickwheelError
from tickwheel.plan import BROKEN_ANSWER, Search
from tickwheel.redis.asyncio_pools import AsyncConnectionPools, read_answer
from tickwheel.redis.caller_channels import CallerChannels
from tickwheel.redis.replies import CONNECTION_ERRORS
from tickwheel.redis.subscriptions import Subscriptions
from tickwheel.redis.task_waiters import JointTaskWaiter, TaskEndWaiter, TaskWaiter, WakeupPace
from tickwheel.redis.wait_list import SWEEP_S, WAKEUPS_AT_ONCE, WaitList
from tickwheel.runtime.event_loop import abandon

# Messages of a server that are processed without a pause. This takes about a millisecond.
_MESSAGES_AT_ONCE: Final = 50


class WakeupTask:
    """Subscribes to the wake channels of the queues that have waiters, on every shard."""

    def __init__(
        self,
        servers: AsyncConnectionPools,
        channels: Callable[[str], list[str]],
        caller_channels: CallerChannels | None = None,
    ) -> None:
        """``caller_channels``: the channels of the callers in all namespaces of the service."""
        self._servers = servers
        self._waiters = WaitList()
        self._pace = WakeupPace()
        self._subscriptions: Subscriptions[asyncio.Event] = Subscriptions(
            servers.topology, self._waiters, channels, caller_channels
        )
        # By server: its connection, and the task that reads from this connection.
        self._connections: dict[str, Any] = {}
        self._reading: dict[str, asyncio.Future[Any]] = {}
        self._interrupted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def waiter_count(self) -> int:
        """The number of tasks that wait."""
        return self._waiters.count()

    def has_waiter(self, queue: str) -> bool:
        """Return whether a task waits for the queue."""
        return self._waiters.has_waiter(queue)

    @property
    def wakeup_count(self) -> int:
        """The number of wake-ups of tasks so far."""
        return self._waiters.wakeup_count

    async def subscribe(self, queue: str, where: bytes = b"", caller: str = "", *, exists: bool = True) -> TaskWaiter:
        """Return a waiter for the queue, once its subscription is confirmed. ``where`` is the packed filter.

        If the queue does not exist, or the caller has too many channels (`redis/caller_channels.py`), there is no
        subscription, and only the sweep wakes the waiter.
        If a server does not confirm the subscription in time, only the periodic sweep (`redis/wait_list.py`) is certain
        to wake the waiter. Raises Forbidden or another TickwheelError if a server refuses the subscription.
        """
        self._start()
        if exists:
            await self._confirm(queue, self._servers.answer_s, caller)
        waiter = TaskWaiter(self._pace, self._waiters, queue, self._subscriptions.check, where, caller)
        if exists:
            # The subscription may have ended before the waiter was there.
            self._begin_subscription(queue, caller)
        return waiter

    async def subscribe_jointly(
        self, queues: Sequence[str], caller: str = "", closed: Sequence[str] = ()
    ) -> JointTaskWaiter:
        """Return a waiter for all of the queues, once their subscriptions are confirmed. See `subscribe`.

        ``closed``: further queues, which are closed, so there are no subscriptions to them.
        """
        self._start()
        # All subscriptions begin before the first confirmation is awaited.
        for queue in queues:
            _, is_new = self._begin_subscription(queue, caller)
            if is_new:
                # On 256 shards, this takes half a millisecond.
                await asyncio.sleep(0)
        ends = time.monotonic() + self._servers.answer_s
        for queue in queues:
            await self._confirm(queue, max(ends - time.monotonic(), 0), caller)
        waiter = JointTaskWaiter(self._pace, self._waiters, queues, self._subscriptions.check, caller, closed)
        for queue in queues:
            self._begin_subscription(queue, caller)
        return waiter

    async def subscribe_to_end(self, topic: str, field: bytes, caller: str = "") -> TaskEndWaiter:
        """Return a waiter for the end of a message, once the subscription to its topic is confirmed.

        If a server does not confirm the subscription in time, the waiter may miss the end. Raises errors as `subscribe`
        does.
        """
        await self._confirm(topic, self._servers.answer_s)
        end_waits, check = self._subscriptions.end_waits, self._subscriptions.check
        waiter = TaskEndWaiter(self._pace, end_waits, topic, field, check, caller)
        # The subscription may have ended before the waiter was there.
        self._begin_subscription(topic)
        return waiter

    def _start(self) -> None:
        if self._task is None and not self._stopping:
            self._task = asyncio.create_task(self._run(), name="tickwheel-wake")

    def _begin_subscription(self, queue: str, caller: str = "") -> tuple[asyncio.Event | None, bool]:
        """Return the event of `Subscriptions.confirmation`, and whether the subscription is new."""
        confirmed, is_new = self._subscriptions.confirmation(queue, asyncio.Event, caller)
        if is_new:
            self._start()
            self._interrupted.set()
        return confirmed, is_new

    async def _confirm(self, queue: str, seconds: float, caller: str = "") -> None:
        """Subscribe to the queue, and wait for the confirmation, for at most ``seconds``."""
        confirmed, _ = self._begin_subscription(queue, caller)
        try:
            if confirmed is not None:
                async with asyncio.timeout(seconds):
                    await self._wait_for(confirmed, caller)
        except TimeoutError:
            self._subscriptions.log_problem(
                "the servers have not confirmed the subscriptions of waiting calls yet: until they do, one call of each"
                " queue checks it each second"
            )
        self._subscriptions.check()

    async def _wait_for(self, confirmed: asyncio.Event, caller: str) -> None:
        """Wait for the event, which wakes all calls that wait for a queue, and then for a turn among them."""
        if not confirmed.is_set():
            await confirmed.wait()
            turn = asyncio.Event()
            self._pace.wake(turn, caller)
            await turn.wait()

    async def begin_search(self, search: Search, on_queued: Callable[[], None] | None = None) -> None:
        """Return when the search may run or has an answer. The caller must call `end_search` afterwards.

        ``on_queued`` is called before a wait for other searches.
        """
        turn = asyncio.Event()
        self._subscriptions.begin_search(search, partial(self._pace.wake, turn, search.caller))
        if on_queued is not None and self._subscriptions.is_queued(search):
            on_queued()
        while self._subscriptions.is_queued(search):
            try:
                async with asyncio.timeout(SWEEP_S):
                    await turn.wait()
            except TimeoutError:
                self._subscriptions.release_slow_searches(search)

    def end_search(self, search: Search) -> None:
        """End the search, even if it failed or did not begin. Other searches use its outcome."""
        self._subscriptions.end_search(search)

    def wake_all(self) -> None:
        """Wake every waiter once."""
        self._waiters.wake_all()

    async def stop(self) -> None:
        """End the task, and wake every waiter."""
        task, self._task = self._task, None
        # Needed in addition to the cancellation, which redis-py may lose (see `AsyncRedisExecutor.run`).
        self._stopping = True
        self._interrupted.set()
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._subscriptions.close()

    async def _run(self) -> None:
        try:
            while not self._stopping:
                await self._subscribe_missing()
                for server in await self._wait_readable():
                    await self._on_server(server, self._on_reader_done)
                for server, channels in self._subscriptions.due_probes().items():
                    await self._on_server(server, partial(self._subscribe, channels))
                self._subscriptions.sweep_if_due()
                await self._end_idle()
                await self._wake_for_lost()
                if self._waiters.sweep_part():
                    self._interrupted.set()
                if self._is_unused():
                    await self._close_connections()
                    if self._is_unused():  # A call may have begun to wait meanwhile.
                        self._task = None
                        return
        finally:
            await self._close_connections()

    def _is_unused(self) -> bool:
        return not (self._waiters.has_waiters or self._subscriptions.has_any) and self._subscriptions.may_send_part

    async def _subscribe_missing(self) -> None:
        """Subscribe to a part of the missing channels at their servers."""
        if self._subscriptions.slots_stale:
            try:
                await self._servers.refresh_slots()
                self._subscriptions.on_slots_read()
            except (*CONNECTION_ERRORS, TickwheelError) as error:
                await asyncio.sleep(self._subscriptions.on_slots_unknown(error))
        if self._subscriptions.may_send_part:
            for server, channels in self._subscriptions.missing_by_server().items():
                await self._on_server(server, partial(self._subscribe, channels))

    async def _end_idle(self) -> None:
        if self._subscriptions.may_send_part:
            for server, channels in self._subscriptions.end_idle().items():
                await self._on_server(server, partial(self._send, "SUNSUBSCRIBE", channels))

    async def _on_server(self, server: str, work: Callable[[str], Awaitable[None]]) -> None:
        """Run ``work`` for a server. If the connection is lost or refused, its channels count as missing again."""
        try:
            await work(server)
        except (*CONNECTION_ERRORS, *BROKEN_ANSWER, TickwheelError) as error:
            pause = self._subscriptions.on_error(server, error)
            await self._close_connection(server)
            await asyncio.sleep(0)
            while self._subscriptions.forget_part(server):
                await asyncio.sleep(0)
            await asyncio.sleep(pause)

    async def _subscribe(self, channels: list[bytes], server: str) -> None:
        if server not in self._connections:
            self._connections[server] = await self._servers.open_subscriber(server)
            self._reading[server] = asyncio.ensure_future(self._listen(server))
        await self._send("SSUBSCRIBE", channels, server)

    async def _send(self, command: str, channels: list[bytes], server: str) -> None:
        connection = self._connections[server]
        self._subscriptions.awaited_answers.on_sent(server, len(channels))
        # One command for each channel: a command cannot name channels of several hash slots.
        await connection.send_packed_command(connection.pack_commands([(command, channel) for channel in channels]))

    async def _wait_readable(self) -> list[str]:
        """Wait until reading from a server has failed, a subscription has changed, or the sweep is due.

        Return the servers from which reading has failed: they sent an error, or the connection is lost.
        """
        interrupted = asyncio.ensure_future(self._interrupted.wait())
        try:
            timeout = self._subscriptions.seconds_to_sweep()
            await asyncio.wait([interrupted, *self._reading.values()], timeout=timeout, return_when="FIRST_COMPLETED")
        finally:
            interrupted.cancel()
        self._interrupted.clear()
        return [server for server, reading in self._reading.items() if reading.done()]

    async def _listen(self, server: str) -> Exception:
        """Process messages of a server until the first error, and return the error."""
        connection = self._connections[server]
        messages, wakeups = 0, self.wakeup_count
        while True:
            if messages >= _MESSAGES_AT_ONCE or self.wakeup_count - wakeups >= WAKEUPS_AT_ONCE:
                # To read a message that has arrived already does not let other tasks run.
                await asyncio.sleep(0)
                messages, wakeups = 0, self.wakeup_count
            messages += 1
            message = cast(Any, await read_answer(connection))
            if not isinstance(message, Exception):
                self._subscriptions.on_message(server, message)
                await self._wake_for_lost()
                if message[0] != b"smessage":
                    self._interrupted.set()
            elif not self._subscriptions.is_end_refused(server, message):
                return message

    async def _wake_for_lost(self) -> None:
        while self._waiters.wake_lost_part():
            await asyncio.sleep(0)

    async def _on_reader_done(self, server: str) -> None:
        error = self._reading[server].result()
        if not isinstance(error, AskError):
            raise error
        self._reading[server] = asyncio.ensure_future(self._listen(server))
        self._subscriptions.on_redirect(server, error)

    async def _close_connections(self) -> None:
        for server in list(self._connections):
            self._subscriptions.on_connection_lost(server)
            await self._close_connection(server)

    async def _close_connection(self, server: str) -> None:
        connection, reading = self._connections.pop(server, None), self._reading.pop(server, None)
        if reading is not None:
            abandon(reading)
        if connection is not None:
            await connection.disconnect(nowait=True)
