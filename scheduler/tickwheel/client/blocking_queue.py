# Generated from asyncio_queue.py by `make format` (tests/support/generate_blocking.py). Do not edit.

"""The queue and the leased message of the blocking client."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from tickwheel import limits
from tickwheel.model import validation
from tickwheel.model.message import EnqueueResult, LeasedMessage, MessageView, NewMessage
from tickwheel.model.queue_config import QueueConfig
from tickwheel.model.results import Change, Explanation, ForecastMinute, Lateness
from tickwheel.model.validation import Duration
from tickwheel.operations.dequeue_options import DequeueOptions
from tickwheel.plan import Plan

if TYPE_CHECKING:
    from tickwheel.client.blocking import Tickwheel

T = TypeVar("T")


class Message(LeasedMessage):
    """A message that is leased to this worker."""

    __slots__ = ("_tickwheel",)
    _tickwheel: "Tickwheel"

    def complete(self, result: str | None = None, *, timeout: Duration | None = None) -> None:
        """Mark the message Completed. ``result``, up to 1 KiB, is stored with the message for its retention.

        Raises LeaseLost, InvalidArgument.
        """
        results = None if result is None else [result]
        self._tickwheel._run(self._tickwheel._backend.complete([self], results), timeout=timeout)

    def fail(
        self,
        error: str | None = None,
        retry_in: Duration | None = None,
        *,
        final: bool = False,
        timeout: Duration | None = None,
    ) -> str:
        """Report that the attempt failed, and return the new state of the message.

        If attempts are left, the state is ``invisible`` during the back-off, or ``pending`` if the back-off is zero.
        Otherwise the state is ``errored``. ``error``, up to 1 KiB, is stored with the message. ``retry_in`` is the
        back-off before the next attempt; the default is the queue's back-off, exponential with equal jitter. With
        ``final``, the message is errored even if attempts are left. Raises LeaseLost, InvalidArgument.
        """
        fail = self._tickwheel._backend.fail(self, error, retry_in, final)
        return (self._tickwheel._run(fail, timeout=timeout)).state

    def release(self, *, timeout: Duration | None = None) -> None:
        """Release the message: it is Pending immediately, and the attempt does not count.

        Raises LeaseLost.
        """
        self._tickwheel._run(self._tickwheel._backend.release([self]), timeout=timeout)

    def extend(self, duration: Duration, *, timeout: Duration | None = None) -> datetime:
        """Extend the lease to ``duration`` from now, unless it already lasts longer. Return the end of the lease.

        Raises LeaseLost, InvalidArgument.
        """
        self._tickwheel._run(self._tickwheel._backend.extend([self], duration), timeout=timeout)
        return self.lease_until


class Queue:
    """A queue of a namespace. An instance is cheap to create, and safe to share between threads.

    Each method has an argument ``timeout``: how long the call is retried if the server does not answer, up to 30 s. It
    is a timedelta or a number of seconds, and replaces the timeout of the client. It does not limit a ``wait``: if the
    server does not answer, a call with a wait gives up after at most ``wait`` plus ``timeout``.
    """

    def __init__(self, tickwheel: "Tickwheel", name: str) -> None:
        self._tickwheel = tickwheel
        self.name = validation.plain_name("a queue's name", name)

    def enqueue(
        self,
        payload: bytes | str = b"",
        *,
        json: Any = None,
        id: str | None = None,
        delay: Duration | None = None,
        due: datetime | None = None,
        deadline: datetime | timedelta | None = None,
        priority: int | None = None,
        metadata: Mapping[str, str] | None = None,
        lease: Duration | None = None,
        max_attempts: int | None = None,
        timeout: Duration | None = None,
    ) -> EnqueueResult:
        """Add a message. Adding the same message (same id, same content) again changes nothing.

        A ``payload`` of type str is stored in UTF-8. ``json`` replaces the payload by a value, stored as compact JSON;
        None means that the argument is left out. ``delay`` or ``due`` sets the earliest time of delivery; the default
        is now. A duration is a timedelta or a number of seconds. ``deadline`` is the urgency: the message with the
        earliest deadline is delivered first. The default is the due time. ``priority``, from 0 to 9, sets the deadline
        to the due time minus 365 days for each step, so 9 is the most urgent. ``lease`` and ``max_attempts`` override
        the settings of the queue.
        Raises InvalidArgument, PayloadTooLarge, IdConflict, QueueBlocked, QueueNotFound, OutOfMemory, Unavailable.
        """
        new = NewMessage(payload, id, delay, due, deadline, metadata, lease, max_attempts, priority, json)
        [result] = self._run(self._tickwheel._backend.enqueue_many(self.name, [new]), timeout)
        return result

    def enqueue_many(self, messages: Iterable[NewMessage], *, timeout: Duration | None = None) -> list[EnqueueResult]:
        """Add messages, and return their results in the same order.

        The messages are sent in chunks, with one round trip for each chunk. A chunk has at most 250 messages for each
        shard, and fewer if the messages of a shard have many metadata pairs or exceed 1 MiB.

        An invalid message stops the call before the chunk that contains it is sent; chunks already sent remain
        enqueued. A message that the server rejects (IdConflict, or InvalidArgument for a ``due`` more than five years
        ahead) does not stop the others. The error is raised after all chunks, and its ``results`` hold the result of
        every message, or None for a rejected message. After any other error, it is unknown which messages were
        enqueued. Repeating the call with the same ids is safe.
        """
        return self._run(self._tickwheel._backend.enqueue_many(self.name, messages), timeout)

    def dequeue(
        self,
        limit: int = 1,
        *,
        where: Mapping[str, str] | None = None,
        lease: Duration | None = None,
        wait: Duration | None = None,
        worker: str | None = None,
        request_id: str | None = None,
        consistency: str = "heads",
        timeout: Duration | None = None,
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
        """
        options = DequeueOptions.parse(limit, where, lease, wait, worker, request_id, consistency)
        plan = self._tickwheel._backend.dequeue(self.name, options, Message)
        return self._attach_client(self._tickwheel._run(plan, timeout=timeout))

    def leased(
        self, id: str, token: bytes, exclusive_value: str | None = None, *, timeout: Duration | None = None
    ) -> Message:
        """Return a message that another process dequeued, so that this process can settle it or extend its lease.

        ``token`` is the token of the lease. Raises LeaseLost if the message is no longer leased with this token,
        MessageNotFound, InvalidArgument.
        """
        plan = self._tickwheel._backend.resume_lease(self.name, id, token, exclusive_value, Message)
        [message] = self._attach_client([self._tickwheel._run(plan, timeout=timeout)])
        return message

    def complete_many(
        self,
        messages: Sequence[Message],
        results: Sequence[str | None] | None = None,
        *,
        timeout: Duration | None = None,
    ) -> None:
        """Complete the messages; ``results`` has one result, or None, for each message.

        If leases are lost, the other messages are completed, and LeaseLost is raised at the end. The ``lost`` of the
        error lists the messages whose leases are lost. Leases of a deleted queue are lost. If the call has no other
        leases, QueueNotFound is raised.
        """
        self._tickwheel._run(self._tickwheel._backend.complete(messages, results), timeout=timeout)

    def release_many(self, messages: Sequence[Message], *, timeout: Duration | None = None) -> None:
        """Release the messages. Lost leases raise LeaseLost as in `complete_many`."""
        self._tickwheel._run(self._tickwheel._backend.release(messages), timeout=timeout)

    def extend_many(self, messages: Sequence[Message], duration: Duration, *, timeout: Duration | None = None) -> None:
        """Extend the leases and set ``lease_until`` of the messages. Lost leases raise LeaseLost as in `complete_many`.

        Raises InvalidArgument.
        """
        self._tickwheel._run(self._tickwheel._backend.extend(messages, duration), timeout=timeout)

    def cancel(
        self, id: str, exclusive_value: str | None = None, *, release: bool = False, timeout: Duration | None = None
    ) -> Change:
        """Cancel a message that is not finished. Cancelling the message again changes nothing.

        If the message was Running in an exclusive queue, its exclusive value stays occupied until the worker tries to
        settle or extend the message, or until the lease ends. ``release`` frees the value immediately.
        Raises MessageNotFound, InvalidTransition, InvalidArgument.
        """
        [change] = self.cancel_many([id], exclusive_value, release=release, timeout=timeout)
        return change

    def cancel_many(
        self,
        ids: Sequence[str],
        exclusive_value: str | None = None,
        *,
        release: bool = False,
        timeout: Duration | None = None,
    ) -> list[Change]:
        """Cancel messages. In an exclusive queue, all of them must have the same exclusive value.

        A message that cannot be cancelled does not stop the others. The first error is raised at the end.
        """
        plan = self._tickwheel._backend.cancel_many(self.name, ids, exclusive_value, release)
        return self._run(plan, timeout)

    def reschedule(
        self,
        id: str,
        exclusive_value: str | None = None,
        *,
        delay: Duration | None = None,
        due: datetime | None = None,
        deadline: datetime | timedelta | None = None,
        timeout: Duration | None = None,
    ) -> Change:
        """Set a new due time, a new deadline, or both, of a message that is Invisible or Pending.

        Raises MessageNotFound, InvalidTransition, InvalidArgument, OutOfMemory, OutboxFull.
        """
        plan = self._tickwheel._backend.reschedule(self.name, id, exclusive_value, delay, due, deadline)
        return self._run(plan, timeout)

    def redrive(self, id: str, exclusive_value: str | None = None, *, timeout: Duration | None = None) -> Change:
        """Move an errored message back to Pending, with no attempts used. Raises MessageNotFound, InvalidTransition."""
        return self._tickwheel._run(self._tickwheel._backend.redrive(self.name, id, exclusive_value), timeout=timeout)

    def get(
        self,
        id: str,
        exclusive_value: str | None = None,
        *,
        wait: Duration | None = None,
        timeout: Duration | None = None,
    ) -> MessageView:
        """Return the current state of a message. With ``wait``, first wait until it is completed, cancelled or errored.

        When the wait is over, return the message as it is. A completion without ``results`` (see `complete_many`) wakes
        no call: it is noticed within ten seconds. Raises MessageNotFound, also if the message is removed meanwhile.
        """
        wait_ms = 0 if wait is None else validation.duration_ms("wait", wait, 0, limits.WAIT_MS_MAX)
        return self._run(self._tickwheel._backend.get(self.name, id, exclusive_value, wait_ms), timeout)

    def explain(self, id: str, exclusive_value: str | None = None, *, timeout: Duration | None = None) -> Explanation:
        """Return why the message is not running, and when it will run. Raises MessageNotFound."""
        return self._tickwheel._run(self._tickwheel._backend.explain(self.name, id, exclusive_value), timeout=timeout)

    def messages(self, state: str | None = None, *, timeout: Duration | None = None) -> Iterable[MessageView]:
        """Iterate over the messages of the queue, or only over those in ``state``.

        The iteration reads every message of the namespace. A message that exists during the whole iteration is
        returned, possibly twice.
        """
        pager = self._tickwheel._backend.pages(self.name, state)
        while not pager.ended:
            yield from self._tickwheel._run(pager.next(), timeout=timeout)

    def purge(self, states: Iterable[str] | None = None, *, timeout: Duration | None = None) -> int:
        """Remove messages, whatever their retention is, and return their number.

        ``states``: the states of the messages to remove (default: all except ``running``). Invisible and Pending
        messages are cancelled first. The history contains every transition. A message that is enqueued during the purge
        may stay. If the call fails, a part of the messages may be removed: repeat the call. Raises QueueNotFound,
        OutboxFull, InvalidArgument.
        """
        return self._tickwheel._remove_all(self._tickwheel._backend.purge(self.name, states), timeout)

    def counts(self, *, timeout: Duration | None = None) -> dict[str, int]:
        """Return the number of messages in each state: invisible, pending, running, completed, cancelled, errored."""
        return self._tickwheel._run(self._tickwheel._backend.counts(self.name), timeout=timeout)

    def lateness(self, *, timeout: Duration | None = None) -> Lateness:
        """Return how late messages became deliverable, and how many missed their deadline."""
        return self._tickwheel._run(self._tickwheel._backend.lateness(self.name), timeout=timeout)

    def depth(self, where: Mapping[str, str] | None = None, *, timeout: Duration | None = None) -> int:
        """Return the number of Pending messages that have every metadata pair of ``where``."""
        return self._tickwheel._run(self._tickwheel._backend.depth(self.name, where), timeout=timeout)

    def forecast(self, minutes: int = 60, *, timeout: Duration | None = None) -> list[ForecastMinute]:
        """Return how many messages fall due in each of the next ``minutes``.

        The queue must have been created with ``forecast=True``.
        """
        return self._tickwheel._run(self._tickwheel._backend.forecast(self.name, minutes), timeout=timeout)

    def block(self, *, enqueue: bool = True, dequeue: bool = True, timeout: Duration | None = None) -> QueueConfig:
        """Block enqueue, dequeue, or both, so that they raise QueueBlocked. Return the new configuration.

        A dequeue that is already waiting raises QueueBlocked within seconds.
        """
        return self._tickwheel._run(
            self._tickwheel._backend.block(self.name, True, enqueue=enqueue, dequeue=dequeue), timeout=timeout
        )

    def unblock(self, *, enqueue: bool = True, dequeue: bool = True, timeout: Duration | None = None) -> QueueConfig:
        """Lift the block of enqueue, dequeue, or both. Return the new configuration."""
        return self._tickwheel._run(
            self._tickwheel._backend.block(self.name, False, enqueue=enqueue, dequeue=dequeue), timeout=timeout
        )

    def config(self, *, timeout: Duration | None = None) -> QueueConfig:
        """Return the queue's configuration, read from the metadata shard. Raises QueueNotFound."""
        return self._tickwheel._run(self._tickwheel._backend.config(self.name), timeout=timeout)

    def __repr__(self) -> str:
        return f"<Queue {self.name!r} of {self._tickwheel!r}>"

    def _run(self, plan: Plan[T], timeout: Duration | None) -> T:
        """Run the plan of a call that producers make."""
        return self._tickwheel._run(plan, timeout=timeout, for_producer=True)

    def _attach_client(self, messages: list[Message]) -> list[Message]:
        for message in messages:
            message._tickwheel = self._tickwheel
        return messages
