"""A queue and its leased messages, for asyncio: each method is that of `tickwheel.Queue`, awaited."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from tickwheel.client.backend import Backend
from tickwheel.model import validation
from tickwheel.model.message import EnqueueResult, LeasedMessage, MessageView, NewMessage
from tickwheel.model.queue_config import QueueConfig
from tickwheel.model.results import Change, Explanation, ForecastMinute, Lateness
from tickwheel.operations.dequeue_options import DequeueOptions

if TYPE_CHECKING:
    from tickwheel.client.asyncio import Tickwheel


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
