# Generated from asyncio_queue.py by `make format` (scheduler/generate_blocking.py). Do not edit.

"""The queue and the leased message of the blocking client."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from tickwheel.client.backend import Backend
from tickwheel.model import validation
from tickwheel.model.message import EnqueueResult, LeasedMessage, MessageView, NewMessage
from tickwheel.model.queue_config import QueueConfig
from tickwheel.model.results import Change, Explanation, ForecastMinute, Lateness
from tickwheel.operations.dequeue_options import DequeueOptions

if TYPE_CHECKING:
    from tickwheel.client.blocking import Tickwheel


class Message(LeasedMessage):
    """A message that this worker holds the lease of."""

    __slots__ = ("_tickwheel",)
    _tickwheel: "Tickwheel"

    def complete(self, result: str | None = None) -> None:
        """Done. ``result``, up to 1 KiB, is kept for the retention. Raises LeaseLost, InvalidArgument."""
        results = None if result is None else [result]
        self._tickwheel._run(self._tickwheel._backend.complete([self], results))

    def fail(self, error: str | None = None, retry_in: timedelta | None = None, *, final: bool = False) -> str:
        """Give it back; answers its new state: ``invisible``, ``pending`` or, with its attempts used up, ``errored``.

        ``retry_in`` is the back-off before the next attempt, by default the queue's: exponential with full jitter.
        ``error`` is kept with the message, up to 1 KiB. ``final``: errored, whatever attempts are left.
        Raises LeaseLost, InvalidArgument.
        """
        return self._tickwheel._run(self._tickwheel._backend.fail(self, error, retry_in, final))

    def release(self) -> None:
        """Give it back as if it had not been delivered: pending at once, the attempt not counted. Raises LeaseLost."""
        self._tickwheel._run(self._tickwheel._backend.release([self]))

    def extend(self, duration: timedelta) -> datetime:
        """Hold the lease until ``duration`` from now, if that is later; answers when it ends. Raises LeaseLost."""
        self._tickwheel._run(self._tickwheel._backend.extend([self], duration))
        return self.lease_until


class Queue:
    """A queue of a namespace. Cheap to make, safe to share between threads."""

    def __init__(self, tickwheel: "Tickwheel", name: str) -> None:
        self._tickwheel = tickwheel
        self.name = validation.plain_name("a queue's name", name)

    def enqueue(
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
        """Add a message; the same again (same id and content) changes nothing.

        ``delay`` or ``due`` is when it may first be delivered, by default now. ``deadline`` is its urgency, by default
        `due`: the earliest is delivered first. ``lease`` and ``max_attempts`` override the queue's.
        Raises InvalidArgument, PayloadTooLarge, IdConflict, QueueBlocked, QueueNotFound, OutOfMemory, Unavailable.
        """
        new = NewMessage(payload, id, delay, due, deadline, metadata, lease, max_attempts)
        [result] = self._tickwheel._run(self._backend.enqueue_many(self.name, [new]))
        return result

    def enqueue_many(self, messages: Iterable[NewMessage]) -> list[EnqueueResult]:
        """Add many, a round trip for each 250 messages of a shard; fewer with many pairs, or beyond 1 MiB.

        One that is wrong in itself ends it before its part is sent; parts sent before stay. What only the server can
        tell (IdConflict; InvalidArgument for a ``due`` more than five years ahead) comes after all others are added,
        and the error's ``results`` say which. Any other error leaves open which are in; the same again is safe.
        """
        return self._tickwheel._run(self._backend.enqueue_many(self.name, messages))

    def dequeue(
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
        """Lease up to ``limit`` messages, earliest deadline first, of those that carry every pair of ``where``.

        ``wait`` is how long to sleep for the first one; without it an empty queue answers at once. ``worker`` names
        the holder in `explain` and events. The same ``request_id`` (``slot:sequence``, the sequence growing with each
        call of the slot) again within five minutes answers the same messages, as far as they are still held.
        Over several shards the order is by heads at most 100 ms old, ``where`` or not; ``consistency="exact"`` asks all
        of them first for the most urgent that match, which takes a round trip more.
        Raises InvalidArgument, QueueBlocked, QueueConfigConflict (it has a sink), QueueNotFound, Unavailable.
        """
        options = DequeueOptions.parse(limit, where, lease, wait, worker, request_id, consistency)
        plan = self._backend.dequeue(self.name, options, Message)
        return self._tickwheel._attach_client(self._tickwheel._run(plan))

    def leased(self, id: str, token: bytes, exclusive_value: str | None = None) -> Message:
        """A message that was dequeued elsewhere, by the token of its lease: to finish or extend it from here.

        Raises LeaseLost where the token no longer owns it, MessageNotFound, InvalidArgument.
        """
        plan = self._backend.resume_lease(self.name, id, token, exclusive_value, Message)
        [message] = self._tickwheel._attach_client([self._tickwheel._run(plan)])
        return message

    def complete_many(self, messages: Sequence[Message], results: Sequence[str | None] | None = None) -> None:
        """Complete all, with a result for each. Raises LeaseLost, whose ``lost`` names those no longer held, after the
        others are done.
        """
        self._tickwheel._run(self._backend.complete(messages, results))

    def release_many(self, messages: Sequence[Message]) -> None:
        """Release all; as `complete_many` where some are no longer held."""
        self._tickwheel._run(self._backend.release(messages))

    def extend_many(self, messages: Sequence[Message], duration: timedelta) -> None:
        """Extend all, whose ``lease_until`` is the new one then; as `complete_many` where some are no longer held."""
        self._tickwheel._run(self._backend.extend(messages, duration))

    def cancel(self, id: str, exclusive_value: str | None = None, *, release: bool = False) -> Change:
        """Cancel a message that is not finished; again changes nothing.

        A running one of an exclusive queue holds its value until its worker's next call or the end of its lease;
        ``release`` frees it at once. Raises MessageNotFound, InvalidTransition, InvalidArgument.
        """
        [change] = self.cancel_many([id], exclusive_value, release=release)
        return change

    def cancel_many(
        self, ids: Sequence[str], exclusive_value: str | None = None, *, release: bool = False
    ) -> list[Change]:
        """Cancel all, of one exclusive value where the queue is exclusive; raises for the first that was refused."""
        return self._tickwheel._run(self._backend.cancel_many(self.name, ids, exclusive_value, release))

    def reschedule(
        self,
        id: str,
        exclusive_value: str | None = None,
        *,
        delay: timedelta | None = None,
        due: datetime | None = None,
        deadline: datetime | timedelta | None = None,
    ) -> Change:
        """Give a message that is not delivered yet a new due time, a new deadline, or both.

        Raises MessageNotFound, InvalidTransition, InvalidArgument.
        """
        plan = self._backend.reschedule(self.name, id, exclusive_value, delay, due, deadline)
        return self._tickwheel._run(plan)

    def redrive(self, id: str, exclusive_value: str | None = None) -> Change:
        """Errored -> Pending, with attempts from zero. Raises MessageNotFound, InvalidTransition."""
        return self._tickwheel._run(self._backend.redrive(self.name, id, exclusive_value))

    def get(self, id: str, exclusive_value: str | None = None) -> MessageView:
        """The message as it stands. Raises MessageNotFound."""
        return self._tickwheel._run(self._backend.get(self.name, id, exclusive_value))

    def explain(self, id: str, exclusive_value: str | None = None) -> Explanation:
        """Why the message is not running, and when it will. Raises MessageNotFound."""
        return self._tickwheel._run(self._backend.explain(self.name, id, exclusive_value))

    def messages(self, state: str | None = None) -> Iterable[MessageView]:
        """Walk over all messages of the queue, of one state if asked; reads every message of the namespace."""
        pager = self._backend.pages(self.name, state)
        while not pager.ended:
            yield from self._tickwheel._run(pager.next())

    def counts(self) -> dict[str, int]:
        """How many messages are invisible, pending, running, completed, cancelled and errored."""
        return self._tickwheel._run(self._backend.counts(self.name))

    def lateness(self) -> Lateness:
        """How late messages became deliverable, and how many missed their deadline."""
        return self._tickwheel._run(self._backend.lateness(self.name))

    def depth(self, where: Mapping[str, str] | None = None) -> int:
        """How many messages are Pending, of those that carry every pair of ``where``."""
        return self._tickwheel._run(self._backend.depth(self.name, where))

    def forecast(self, minutes: int = 60) -> list[ForecastMinute]:
        """What falls due in each of the coming minutes; the queue must have been created with ``forecast=True``."""
        return self._tickwheel._run(self._backend.forecast(self.name, minutes))

    def block(self, *, enqueue: bool = True, dequeue: bool = True) -> QueueConfig:
        """Block enqueue, dequeue, or both: they raise QueueBlocked, a dequeue that waits already within seconds."""
        return self._tickwheel._run(self._backend.block(self.name, True, enqueue=enqueue, dequeue=dequeue))

    def unblock(self, *, enqueue: bool = True, dequeue: bool = True) -> QueueConfig:
        """Lift the block of enqueue, dequeue, or both."""
        return self._tickwheel._run(self._backend.block(self.name, False, enqueue=enqueue, dequeue=dequeue))

    def config(self) -> QueueConfig:
        """The queue's configuration, read from its home. Raises QueueNotFound."""
        return self._tickwheel._run(self._backend.config(self.name))

    def __repr__(self) -> str:
        return f"<Queue {self.name!r} of {self._tickwheel!r}>"

    @property
    def _backend(self) -> Backend:
        return self._tickwheel._backend
