"""All exceptions, in one tree.

TickwheelError
├── the call is wrong: InvalidArgument (PayloadTooLarge, ArgumentsRefused), NamespaceNotFound, NamespaceGone,
│   NamespaceInUse, QueueNotFound, QueueConfigConflict, QueueBlocked, QueueNotEmpty, IdConflict, MessageNotFound,
│   InvalidTransition, NoResult, ResultExpired, LeaseLost, Forbidden (Unauthenticated)
├── the data of the server is wrong, and not the call: DataLoss
├── the server cannot execute the call now: NotDurable, OutOfMemory, OutboxFull, LimitExceeded, Fenced,
│   EmbeddedServerError
└── the outcome may be unknown: SessionExpired, Unavailable (HandshakeFailed)

The text of an exception names the problem, the value and the allowed values. Attributes carry the same facts for
programs.
"""

from collections.abc import Sequence
from typing import Any


class TickwheelError(Exception):
    """The base class of every exception that Tickwheel raises on purpose."""


class InvalidArgument(TickwheelError, ValueError):
    """An argument has the wrong type or a value that is not allowed. The call had no effect, except for two cases of
    batches. The error is also raised for a `request_id` that was used for another call, which changes nothing.

    A long batch is sent in several rounds. If a message is invalid, the messages of earlier rounds are already
    enqueued. The server also checks that a due time is not too far ahead of its clock. If the server refuses a due
    time, all other messages of the batch are enqueued, and ``results`` holds the result of every message in order (None
    for a refused message). ``summary`` is the last part of the error text: the number of enqueued messages.
    """

    def __init__(self, text: str, results: Sequence[Any] = (), *, summary: str = "") -> None:
        super().__init__(text)
        self.results = list(results)
        self.summary = summary


class PayloadTooLarge(InvalidArgument):
    """The payload is longer than the limit. Store the payload elsewhere, and enqueue a reference to it."""


class ArgumentsRefused(InvalidArgument):
    """The arguments of a task do not fit its signature. Nothing was sent.

    A worker writes this error to its log, and fails the message, if it has no task of this name, or another signature.
    """


class NamespaceNotFound(TickwheelError):
    """No namespace of this name exists on the server, and the call does not create namespaces."""


class NamespaceGone(TickwheelError):
    """The namespace is being deleted, or no longer exists with the settings with which the client opened it.

    A repeated call fails, too, until the namespace is created again.
    """


class NamespaceInUse(TickwheelError):
    """The namespace cannot be deleted now: event processes drive it, or its events are not relayed to Kafka."""


class QueueNotFound(TickwheelError):
    """No queue of this name exists, or the queue was recreated after the client had read its configuration or leased
    the messages, or the leases are of another queue.

    In the first case, either the call does not create queues, or the namespace has no ``auto_create``.
    """


class QueueConfigConflict(TickwheelError):
    """The call does not match the configuration of the queue.

    Either the queue exists with another configuration, or the call would change an immutable setting, or the
    configuration excludes the operation: workers cannot dequeue from a queue with a sink.

    If another argument would resolve the conflict, ``advice`` is the last part of the error text and names this
    argument. Otherwise ``advice`` is empty.
    """

    def __init__(self, *args: object, advice: str = "") -> None:
        super().__init__(*args)
        self.advice = advice


class QueueBlocked(TickwheelError):
    """The queue is blocked for this operation, until an operator or a program unblocks it."""


class DataLoss(TickwheelError):
    """Stored data that the call needs is damaged, for example a name that is not UTF-8. A repeated call fails, too.

    No program of Tickwheel stores such data. `tickwheel doctor` lists all damage.
    """


class QueueNotEmpty(TickwheelError):
    """The queue cannot be deleted now: it has unfinished messages, or events that are not relayed to Kafka."""


class IdConflict(TickwheelError):
    """A message with this id exists with other content.

    For a batch, ``results`` holds the result of every message in order (None for a message in conflict), and
    ``summary`` is the last part of the error text: the number of enqueued messages.
    """

    def __init__(self, text: str, results: Sequence[Any] = (), *, summary: str = "") -> None:
        super().__init__(text)
        self.results = list(results)
        self.summary = summary


class MessageNotFound(TickwheelError):
    """No such message: it was never enqueued, or its retention is over."""


class InvalidTransition(TickwheelError):
    """The operation is not allowed in the current state of the message. ``state`` is this state."""

    def __init__(self, text: str, state: str = "") -> None:
        super().__init__(text)
        self.state = state


class NoResult(TickwheelError):
    """The call of a task has no result: it has not ended, it failed or was cancelled, or it stored none.

    ``state`` is the state of its message, and ``error`` the error text if the message is Errored.
    """

    def __init__(self, text: str, state: str = "", error: str = "") -> None:
        super().__init__(text)
        self.state = state
        self.error = error


class ResultExpired(TickwheelError):
    """The message of the call no longer exists: its retention is over, or it was never enqueued."""


class LeaseLost(TickwheelError):
    """The token no longer owns the message: the lease expired, or the message was cancelled or settled.

    For a batch, ``lost`` holds the messages whose lease is lost; the call took effect on all others.
    """

    def __init__(self, text: str, lost: Sequence[Any] = ()) -> None:
        super().__init__(text)
        self.lost = list(lost)


class Forbidden(TickwheelError):
    """The server rejected the user or the password, or the user has no permission for the command.

    The service raises this error if the token has no permission for the call.
    """


class Unauthenticated(Forbidden):
    """The service cannot identify the caller: the token is missing, unknown or expired."""


class NotDurable(TickwheelError):
    """The server cannot provide the requested durability, or too few replicas have confirmed the change.

    In the second case, the primary has executed the call. The call may be repeated in both cases.
    """


class OutOfMemory(TickwheelError):
    """The server is at its memory limit and refused the call: an enqueue, a reschedule, or the creation of a queue.

    The call changed nothing, unless the client repeated it because the answer to an earlier attempt was lost.
    """


class OutboxFull(TickwheelError):
    """The shard's outbox is at its limit. Enqueue, reschedule and redrive are refused until events are relayed.

    All other operations are accepted, so that workers can finish existing messages.

    ``size`` is the size of the shard's events in bytes, and ``limit`` is the maximum size.
    """

    def __init__(self, text: str, size: int = 0, limit: int = 0) -> None:
        super().__init__(text)
        self.size = size
        self.limit = limit


class LimitExceeded(TickwheelError):
    """The service throttles the call: the token exceeds its message rate, or too many calls wait or are in flight.

    Nothing was done. The call may be repeated after ``retry_after_ms``; the client does so within its timeout.
    """

    def __init__(self, text: str, retry_after_ms: int = 0) -> None:
        super().__init__(text)
        self.retry_after_ms = retry_after_ms


class SessionExpired(TickwheelError):
    """A call was repeated after its session expired, or after a newer call of the session.

    It is unknown whether the first call took effect.
    """


class Fenced(TickwheelError):
    """Another driver with a newer fence drives this shard. Nothing was changed.

    ``held`` is the epoch in the shard's fence, or None if the server's error does not contain the epoch.
    """

    def __init__(self, text: str, held: int | None = None) -> None:
        super().__init__(text)
        self.held = held


class Unavailable(TickwheelError):
    """The server is unreachable, or did not answer in time.

    ``may_have_happened`` is False if the call certainly had no effect.
    """

    def __init__(self, text: str, *, may_have_happened: bool = True) -> None:
        super().__init__(text)
        self.may_have_happened = may_have_happened


class HandshakeFailed(Unavailable):
    """Client and service cannot connect: only one of them uses TLS, or a certificate is rejected. Nothing was sent.

    Raised at the first attempt, because a retry would not help.
    """

    def __init__(self, text: str, *, may_have_happened: bool = False) -> None:
        super().__init__(text, may_have_happened=may_have_happened)
