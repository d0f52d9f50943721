"""The client for asyncio: the same surface as `tickwheel`, with `await`. Every decision is in the same core.

async with tickwheel.aio.Tickwheel() as tw:
    await tw.queue("mail").enqueue(b"…")
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from tickwheel.client import connect
from tickwheel.client.backend import Backend
from tickwheel.client.local_processes import LocalProcesses
from tickwheel.client.settings import ClientSettings
from tickwheel.errors import TickwheelError
from tickwheel.model import validation
from tickwheel.model.message import EnqueueResult, LeasedMessage, MessageView, NewMessage
from tickwheel.model.queue_config import QueueConfig
from tickwheel.model.results import Change, Explanation, ForecastMinute, Lateness
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.dequeue_options import DequeueOptions
from tickwheel.plan import Plan
from tickwheel.runtime.event_loop import finish_despite_cancel, run_in_thread, wrong_loop_error

T = TypeVar("T")


class Message(LeasedMessage):
    """A message that this worker holds the lease of."""

    __slots__ = ("_tickwheel",)
    _tickwheel: "Tickwheel"

    async def complete(self, result: str | None = None) -> None:
        """Done; see `tickwheel.Message.complete`."""
        results = None if result is None else [result]
        await self._tickwheel._run(self._tickwheel._backend.complete([self], results))

    async def fail(self, error: str | None = None, retry_in: timedelta | None = None, *, final: bool = False) -> str:
        """Give it back; see `tickwheel.Message.fail`."""
        return await self._tickwheel._run(self._tickwheel._backend.fail(self, error, retry_in, final))

    async def release(self) -> None:
        """Give it back as if it had not been delivered; see `tickwheel.Message.release`."""
        await self._tickwheel._run(self._tickwheel._backend.release([self]))

    async def extend(self, duration: timedelta) -> datetime:
        """Hold the lease longer; see `tickwheel.Message.extend`."""
        await self._tickwheel._run(self._tickwheel._backend.extend([self], duration))
        return self.lease_until


class Queue:
    """A queue of a namespace; each method is that of `tickwheel.Queue`, awaited."""

    def __init__(self, tickwheel: "Tickwheel", name: str) -> None:
        self._tickwheel = tickwheel
        self.name = validation.plain_name("a queue's name", name)

    async def enqueue(
        self,
        payload: bytes = b"",
        *,
        id: str | None = None,
        delay: timedelta | None = None,
        due: datetime | None = None,
        deadline: datetime | timedelta | None = None,
        metadata: Mapping[str, str] | None = None,
        lease: timedelta | None = None,
        max_attempts: int | None = None,
    ) -> EnqueueResult:
        """Add a message; see `tickwheel.Queue.enqueue`."""
        new = NewMessage(payload, id, delay, due, deadline, metadata, lease, max_attempts)
        return (await self._tickwheel._run(self._backend.enqueue_many(self.name, [new])))[0]

    async def enqueue_many(self, messages: Iterable[NewMessage]) -> list[EnqueueResult]:
        """Add many; see `tickwheel.Queue.enqueue_many`."""
        return await self._tickwheel._run(self._backend.enqueue_many(self.name, messages))

    async def dequeue(
        self,
        limit: int = 1,
        *,
        where: Mapping[str, str] | None = None,
        lease: timedelta | None = None,
        wait: timedelta | None = None,
        worker: str | None = None,
        request_id: str | None = None,
        consistency: str = "heads",
    ) -> list[Message]:
        """Lease messages, earliest deadline first; see `tickwheel.Queue.dequeue`.

        To cancel the task, by ``asyncio.timeout`` too, does not take back what was sent: messages may have been leased
        by then, which stay so until their lease ends, and their attempt counts. So limit the time by ``wait``; or give
        a ``request_id``, and repeat the call with the same one to get them.
        """
        options = DequeueOptions.parse(limit, where, lease, wait, worker, request_id, consistency)
        plan = self._backend.dequeue(self.name, options, Message)
        return self._tickwheel._attach_client(await self._tickwheel._run(plan))

    async def leased(self, id: str, token: bytes, exclusive_value: str | None = None) -> Message:
        """A message that was dequeued elsewhere; see `tickwheel.Queue.leased`."""
        plan = self._backend.resume_lease(self.name, id, token, exclusive_value, Message)
        return self._tickwheel._attach_client([await self._tickwheel._run(plan)])[0]

    async def complete_many(self, messages: Sequence[Message], results: Sequence[str | None] | None = None) -> None:
        """Complete all; see `tickwheel.Queue.complete_many`."""
        await self._tickwheel._run(self._backend.complete(messages, results))

    async def release_many(self, messages: Sequence[Message]) -> None:
        """Release all; see `tickwheel.Queue.release_many`."""
        await self._tickwheel._run(self._backend.release(messages))

    async def extend_many(self, messages: Sequence[Message], duration: timedelta) -> None:
        """Extend all; see `tickwheel.Queue.extend_many`."""
        await self._tickwheel._run(self._backend.extend(messages, duration))

    async def cancel(self, id: str, exclusive_value: str | None = None, *, release: bool = False) -> Change:
        """Cancel a message; see `tickwheel.Queue.cancel`."""
        return (await self.cancel_many([id], exclusive_value, release=release))[0]

    async def cancel_many(
        self, ids: Sequence[str], exclusive_value: str | None = None, *, release: bool = False
    ) -> list[Change]:
        """Cancel many; see `tickwheel.Queue.cancel_many`."""
        return await self._tickwheel._run(self._backend.cancel_many(self.name, ids, exclusive_value, release))

    async def reschedule(
        self,
        id: str,
        exclusive_value: str | None = None,
        *,
        delay: timedelta | None = None,
        due: datetime | None = None,
        deadline: datetime | timedelta | None = None,
    ) -> Change:
        """Move a message in time; see `tickwheel.Queue.reschedule`."""
        plan = self._backend.reschedule(self.name, id, exclusive_value, delay, due, deadline)
        return await self._tickwheel._run(plan)

    async def redrive(self, id: str, exclusive_value: str | None = None) -> Change:
        """Try an errored message again; see `tickwheel.Queue.redrive`."""
        return await self._tickwheel._run(self._backend.redrive(self.name, id, exclusive_value))

    async def get(self, id: str, exclusive_value: str | None = None) -> MessageView:
        """The message as it stands; see `tickwheel.Queue.get`."""
        return await self._tickwheel._run(self._backend.get(self.name, id, exclusive_value))

    async def explain(self, id: str, exclusive_value: str | None = None) -> Explanation:
        """Why the message is not running, and when it will; see `tickwheel.Queue.explain`."""
        return await self._tickwheel._run(self._backend.explain(self.name, id, exclusive_value))

    async def messages(self, state: str | None = None) -> AsyncIterator[MessageView]:
        """Walk over all messages of the queue; see `tickwheel.Queue.messages`."""
        pager = self._backend.pages(self.name, state)
        while not pager.ended:
            for message in await self._tickwheel._run(pager.next()):
                yield message

    async def counts(self) -> dict[str, int]:
        """How many messages are in each state; see `tickwheel.Queue.counts`."""
        return await self._tickwheel._run(self._backend.counts(self.name))

    async def lateness(self) -> Lateness:
        """How late messages became deliverable; see `tickwheel.Queue.lateness`."""
        return await self._tickwheel._run(self._backend.lateness(self.name))

    async def depth(self, where: Mapping[str, str] | None = None) -> int:
        """How many messages are Pending; see `tickwheel.Queue.depth`."""
        return await self._tickwheel._run(self._backend.depth(self.name, where))

    async def forecast(self, minutes: int = 60) -> list[ForecastMinute]:
        """What falls due in each of the coming minutes; see `tickwheel.Queue.forecast`."""
        return await self._tickwheel._run(self._backend.forecast(self.name, minutes))

    async def block(self, *, enqueue: bool = True, dequeue: bool = True) -> QueueConfig:
        """Block enqueue, dequeue, or both; see `tickwheel.Queue.block`."""
        return await self._tickwheel._run(self._backend.block(self.name, True, enqueue=enqueue, dequeue=dequeue))

    async def unblock(self, *, enqueue: bool = True, dequeue: bool = True) -> QueueConfig:
        """Lift the block of enqueue, dequeue, or both."""
        return await self._tickwheel._run(self._backend.block(self.name, False, enqueue=enqueue, dequeue=dequeue))

    async def config(self) -> QueueConfig:
        """The queue's configuration, read from its home. Raises QueueNotFound."""
        return await self._tickwheel._run(self._backend.config(self.name))

    def __repr__(self) -> str:
        return f"<Queue {self.name!r} of {self._tickwheel!r}>"

    @property
    def _backend(self) -> Backend:
        return self._tickwheel._backend


class Tickwheel:
    """A delay scheduler and priority queue for asyncio; the parameters are those of `tickwheel.Tickwheel`.

    Use it in an ``async with`` statement, or call `open` and `close`. Until closed it belongs to its event loop.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str = "tw",
        shards: int | None = None,
        data_dir: str | Path | None = None,
        durability: str | None = None,
        drive: bool | None = None,
        history: str | None = None,
        auto_create: bool | None = None,
        clock_guard: timedelta | None = None,
        outbox_limit: int | None = None,
        outbox_full: str | None = None,
        existing: bool = False,
        timeout: timedelta | None = None,
        clock: str = "_clock",
    ) -> None:
        self._client_settings = ClientSettings.validate(url, namespace, data_dir, durability, drive, timeout)
        self._processes = LocalProcesses(self._client_settings)
        self._context = NamespaceContext(self._client_settings.namespace, clock=clock)
        self._untraced_backend = connect.select_backend(self._client_settings, self._context)
        self._namespace_options = (shards, history, auto_create, clock_guard, outbox_limit, outbox_full, existing)
        self._io: Any = None
        # The loop that opened it last, and the lock under which it is opened and closed there.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()

    async def open(self) -> Self:
        """Connect; start the embedded server and its event process where that is asked for.

        Does nothing where it is open. Raises TickwheelError where it is open in another event loop.
        """
        async with self._lifecycle_lock():
            if self._io is None or not self._io.owned_by_this_process:
                await self._open()
        return self

    def queue(self, name: str) -> Queue:
        """A queue by name; nothing is sent."""
        return Queue(self, name)

    async def create_queue(self, name: str, *, update: bool = False, **config: Any) -> Queue:
        """Create a queue, or check that it has this configuration; see `tickwheel.Tickwheel.create_queue`."""
        queue = Queue(self, name)
        await self._run(self._backend.create(queue.name, config, update=update))
        return queue

    async def queues(self) -> list[Queue]:
        """All queues of the namespace, by name."""
        return [Queue(self, name) for name in await self._run(self._backend.queues())]

    async def settings(self) -> dict[str, str]:
        """All settings of the namespace; see `tickwheel.Tickwheel.settings`."""
        return await self._run(self._backend.settings())

    async def setting(self, name: str) -> str | None:
        """One setting; see `tickwheel.Tickwheel.setting`."""
        return await self._run(self._backend.setting(name))

    async def set_setting(self, name: str, value: str | None) -> None:
        """Set or remove one; see `tickwheel.Tickwheel.set_setting`."""
        await self._run(self._backend.set_setting(name, value))

    async def close(self) -> None:
        """Let go of the server; messages stay. May be called twice.

        Waits for an `open` that is under way. Raises TickwheelError in another event loop, unless its own has ended.
        """
        async with self._lifecycle_lock(closing=True):
            await finish_despite_cancel(asyncio.create_task(self._close()))

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Tickwheel {self._client_settings.display_url} namespace={self._context.namespace!r}>"

    def _lifecycle_lock(self, *, closing: bool = False) -> asyncio.Lock:
        """The lock of who opens and closes it. Raises TickwheelError in another event loop than its own."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            taken = self._lock.locked() or (self._io is not None and self._io.owned_by_this_process)
            ended = self._loop is not None and self._loop.is_closed()
            if taken and not (closing and ended):
                raise wrong_loop_error(self._client_settings.display_url, closing=closing)
            # A new lock: one for which tasks have waited is bound to their loop.
            self._loop, self._lock = loop, asyncio.Lock()
        return self._lock

    async def _open(self) -> None:
        try:
            server_url = await run_in_thread(self._processes.open)
            self._io = connect.asyncio_executor(self._client_settings, self._context, self._processes, server_url)
            await self._run(self._backend.open(*self._namespace_options))
            await run_in_thread(self._processes.start_driving)
        except BaseException:
            await finish_despite_cancel(asyncio.create_task(self._close()))
            raise

    async def _close(self) -> None:
        io, self._io = self._io, None
        try:
            if io is not None:
                await io.close()
        finally:
            await run_in_thread(self._processes.close)

    @property
    def _backend(self) -> Backend:
        return connect.with_tracing(self._untraced_backend)

    async def _run(self, plan: Plan[T]) -> T:
        if self._io is None:
            plan.close()
            raise TickwheelError(f"{self!r} is not open, or closed again: use it in `async with`, or await its open()")
        result: T = await self._io.run(plan)
        return result

    def _attach_client(self, messages: list[Message]) -> list[Message]:
        for message in messages:
            message._tickwheel = self
        return messages
