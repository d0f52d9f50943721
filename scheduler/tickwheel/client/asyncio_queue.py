"""The queue and the leased message of the asyncio client."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from tickwheel.model import validation
from tickwheel.model.message import EnqueueResult, LeasedMessage, MessageView, NewMessage
from tickwheel.model.queue_config import QueueConfig
from tickwheel.model.results import Change, Explanation, ForecastMinute, Lateness
from tickwheel.operations.dequeue_options import DequeueOptions

if TYPE_CHECKING:
    from tickwheel.client.asyncio import Tickwheel


class Message(LeasedMessage):
    """A message that is leased to this worker."""

    __slots__ = ("_tickwheel",)
    _tickwheel: "Tickwheel"

    async def complete(self, result: str | None = None) -> None:
        """Mark the message Completed. ``result``, up to 1 KiB, is stored with the message for its retention.

        Raises LeaseLost, InvalidArgument.
        """
        results = None if result is None else [result]
        await self._tickwheel._run(self._tickwheel._backend.complete([self], results))

    async def fail(self, error: str | None = None, retry_in: timedelta | None = None, *, final: bool = False) -> str:
        """Report that the attempt failed, and return the new state of the message.

        If attempts are left, the state is ``invisible`` during the back-off, or ``pending`` if the back-off is zero.
        Otherwise the state is ``errored``. ``error``, up to 1 KiB, is stored with the message. ``retry_in`` is the
        back-off before the next attempt; the default is the queue's back-off, exponential with full jitter. With
        ``final``, the message is errored even if attempts are left. Raises LeaseLost, InvalidArgument.
        """
        return await self._tickwheel._run(self._tickwheel._backend.fail(self, error, retry_in, final))

    async def release(self) -> None:
        """Release the message: it is Pending immediately, and the attempt does not count.

        Raises LeaseLost.
        """
        await self._tickwheel._run(self._tickwheel._backend.release([self]))

    async def extend(self, duration: timedelta) -> datetime:
        """Extend the lease to ``duration`` from now, unless it already lasts longer. Return the end of the lease.

        Raises LeaseLost, InvalidArgument.
        """
        await self._tickwheel._run(self._tickwheel._backend.extend([self], duration))
        return self.lease_until


class Queue:
    """A queue of a namespace. An instance is cheap to create, and belongs to the event loop of its client."""

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
        """Add a message. Adding the same message (same id, same content) again changes nothing.

        ``delay`` or ``due`` sets the earliest time of delivery; the default is now. ``deadline`` is the urgency: the
        message with the earliest deadline is delivered first. The default is the due time. ``lease`` and
        ``max_attempts`` override the settings of the queue.
        Raises InvalidArgument, PayloadTooLarge, IdConflict, QueueBlocked, QueueNotFound, OutOfMemory, Unavailable.
        """
        new = NewMessage(payload, id, delay, due, deadline, metadata, lease, max_attempts)
        [result] = await self._tickwheel._run(self._tickwheel._backend.enqueue_many(self.name, [new]))
        return result

    async def enqueue_many(self, messages: Iterable[NewMessage]) -> list[EnqueueResult]:
        """Add messages, and return their results in the same order.

        The messages are sent in chunks, with one round trip for each chunk. A chunk has at most 250 messages for each
        shard, and fewer if the messages of a shard have many metadata pairs or exceed 1 MiB.

        An invalid message stops the call before the chunk that contains it is sent; chunks already sent remain
        enqueued. A message that the server rejects (IdConflict, or InvalidArgument for a ``due`` more than five years
        ahead) does not stop the others. The error is raised after all chunks, and its ``results`` hold the result of
        every message, or None for a rejected message. After any other error, it is unknown which messages were
        enqueued. Repeating the call with the same ids is safe.
        """
        return await self._tickwheel._run(self._tickwheel._backend.enqueue_many(self.name, messages))

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
        """Lease up to ``limit`` messages that have every metadata pair of ``where``, earliest deadline first.

        ``wait`` is the longest time to wait for the first message; without it, the call on an empty queue returns
        immediately. ``worker`` names the lease holder in `explain` and in events.

        ``request_id`` makes the call safe to repeat: a call with the same id within five minutes returns the same
        messages, except those that are no longer leased. A request id has the form ``name:number``, for example
        ``worker-1:1``. Increase the number for each new request of the name.

        With several shards, the call starts at the shard with the most urgent message. It finds this shard in a cache,
        which is at most 100 ms old and ignores ``where``. With ``consistency="exact"``, the call first asks all shards
        for their most urgent matching messages, which costs one more round trip.
        Raises InvalidArgument, QueueBlocked, QueueConfigConflict (the queue has a sink), QueueNotFound, Unavailable.

        asyncio: cancelling the task, also by ``asyncio.timeout``, does not revoke a request that was already sent.
        Messages may have been leased by then: they stay leased until their lease ends, and the attempt counts. Limit
        the time with ``wait`` instead, or pass a ``request_id`` and repeat the call with the same id to receive them.
        """
        options = DequeueOptions.parse(limit, where, lease, wait, worker, request_id, consistency)
        plan = self._tickwheel._backend.dequeue(self.name, options, Message)
        return self._attach_client(await self._tickwheel._run(plan))

    async def leased(self, id: str, token: bytes, exclusive_value: str | None = None) -> Message:
        """Return a message that another process dequeued, so that this process can settle it or extend its lease.

        ``token`` is the token of the lease. Raises LeaseLost if the message is no longer leased with this token,
        MessageNotFound, InvalidArgument.
        """
        plan = self._tickwheel._backend.resume_lease(self.name, id, token, exclusive_value, Message)
        [message] = self._attach_client([await self._tickwheel._run(plan)])
        return message

    async def complete_many(self, messages: Sequence[Message], results: Sequence[str | None] | None = None) -> None:
        """Complete the messages; ``results`` has one result, or None, for each message.

        If leases are lost, the other messages are completed, and LeaseLost is raised at the end. The ``lost`` of the
        error lists the messages whose leases are lost. Leases of a deleted queue are lost. If the call has no other
        leases, QueueNotFound is raised.
        """
        await self._tickwheel._run(self._tickwheel._backend.complete(messages, results))

    async def release_many(self, messages: Sequence[Message]) -> None:
        """Release the messages. Lost leases raise LeaseLost as in `complete_many`."""
        await self._tickwheel._run(self._tickwheel._backend.release(messages))

    async def extend_many(self, messages: Sequence[Message], duration: timedelta) -> None:
        """Extend the leases and set ``lease_until`` of the messages. Lost leases raise LeaseLost as in `complete_many`.

        Raises InvalidArgument.
        """
        await self._tickwheel._run(self._tickwheel._backend.extend(messages, duration))

    async def cancel(self, id: str, exclusive_value: str | None = None, *, release: bool = False) -> Change:
        """Cancel a message that is not finished. Cancelling the message again changes nothing.

        If the message was Running in an exclusive queue, its exclusive value stays occupied until the worker tries to
        settle or extend the message, or until the lease ends. ``release`` frees the value immediately.
        Raises MessageNotFound, InvalidTransition, InvalidArgument.
        """
        [change] = await self.cancel_many([id], exclusive_value, release=release)
        return change

    async def cancel_many(
        self, ids: Sequence[str], exclusive_value: str | None = None, *, release: bool = False
    ) -> list[Change]:
        """Cancel messages. In an exclusive queue, all of them must have the same exclusive value.

        A message that cannot be cancelled does not stop the others. The first error is raised at the end.
        """
        return await self._tickwheel._run(
            self._tickwheel._backend.cancel_many(self.name, ids, exclusive_value, release)
        )

    async def reschedule(
        self,
        id: str,
        exclusive_value: str | None = None,
        *,
        delay: timedelta | None = None,
        due: datetime | None = None,
        deadline: datetime | timedelta | None = None,
    ) -> Change:
        """Set a new due time, a new deadline, or both, of a message that is Invisible or Pending.

        Raises MessageNotFound, InvalidTransition, InvalidArgument, OutOfMemory, OutboxFull.
        """
        plan = self._tickwheel._backend.reschedule(self.name, id, exclusive_value, delay, due, deadline)
        return await self._tickwheel._run(plan)

    async def redrive(self, id: str, exclusive_value: str | None = None) -> Change:
        """Move an errored message back to Pending, with no attempts used. Raises MessageNotFound, InvalidTransition."""
        return await self._tickwheel._run(self._tickwheel._backend.redrive(self.name, id, exclusive_value))

    async def get(self, id: str, exclusive_value: str | None = None) -> MessageView:
        """Return the current state of a message. Raises MessageNotFound."""
        return await self._tickwheel._run(self._tickwheel._backend.get(self.name, id, exclusive_value))

    async def explain(self, id: str, exclusive_value: str | None = None) -> Explanation:
        """Return why the message is not running, and when it will run. Raises MessageNotFound."""
        return await self._tickwheel._run(self._tickwheel._backend.explain(self.name, id, exclusive_value))

    async def messages(self, state: str | None = None) -> AsyncIterator[MessageView]:
        """Iterate over the messages of the queue, or only over those in ``state``.

        The iteration reads every message of the namespace. A message that exists during the whole iteration is
        returned, possibly twice.
        """
        pager = self._tickwheel._backend.pages(self.name, state)
        while not pager.ended:
            for message in await self._tickwheel._run(pager.next()):
                yield message

    async def purge(self, states: Iterable[str] | None = None) -> int:
        """Remove messages, whatever their retention is, and return their number.

        ``states``: the states of the messages to remove (default: all except ``running``). Invisible and Pending
        messages are cancelled first. The history contains every transition. A message that is enqueued during the purge
        may stay. If the call fails, a part of the messages may be removed: repeat the call. Raises QueueNotFound,
        OutboxFull, InvalidArgument.
        """
        return await self._tickwheel._remove_all(self._tickwheel._backend.purge(self.name, states))

    async def counts(self) -> dict[str, int]:
        """Return the number of messages in each state: invisible, pending, running, completed, cancelled, errored."""
        return await self._tickwheel._run(self._tickwheel._backend.counts(self.name))

    async def lateness(self) -> Lateness:
        """Return how late messages became deliverable, and how many missed their deadline."""
        return await self._tickwheel._run(self._tickwheel._backend.lateness(self.name))

    async def depth(self, where: Mapping[str, str] | None = None) -> int:
        """Return the number of Pending messages that have every metadata pair of ``where``."""
        return await self._tickwheel._run(self._tickwheel._backend.depth(self.name, where))

    async def forecast(self, minutes: int = 60) -> list[ForecastMinute]:
        """Return how many messages fall due in each of the next ``minutes``.

        The queue must have been created with ``forecast=True``.
        """
        return await self._tickwheel._run(self._tickwheel._backend.forecast(self.name, minutes))

    async def block(self, *, enqueue: bool = True, dequeue: bool = True) -> QueueConfig:
        """Block enqueue, dequeue, or both, so that they raise QueueBlocked. Return the new configuration.

        A dequeue that is already waiting raises QueueBlocked within seconds.
        """
        return await self._tickwheel._run(
            self._tickwheel._backend.block(self.name, True, enqueue=enqueue, dequeue=dequeue)
        )

    async def unblock(self, *, enqueue: bool = True, dequeue: bool = True) -> QueueConfig:
        """Lift the block of enqueue, dequeue, or both. Return the new configuration."""
        return await self._tickwheel._run(
            self._tickwheel._backend.block(self.name, False, enqueue=enqueue, dequeue=dequeue)
        )

    async def config(self) -> QueueConfig:
        """Return the queue's configuration, read from the metadata shard. Raises QueueNotFound."""
        return await self._tickwheel._run(self._tickwheel._backend.config(self.name))

    def __repr__(self) -> str:
        return f"<Queue {self.name!r} of {self._tickwheel!r}>"

    def _attach_client(self, messages: list[Message]) -> list[Message]:
        for message in messages:
            message._tickwheel = self._tickwheel
        return messages
