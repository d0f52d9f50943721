"""The one tree of errors.

TickwheelError
├── refused for what was asked: InvalidArgument (PayloadTooLarge), NamespaceNotFound, QueueNotFound,
│   QueueConfigConflict, QueueBlocked, IdConflict, MessageNotFound, InvalidTransition, LeaseLost,
│   Forbidden (Unauthenticated)
├── refused for the state of the service: NotDurable, OutOfMemory, OutboxFull, LimitExceeded, SessionExpired,
│   Fenced, EmbeddedServerError
└── not known: Unavailable (``may_have_happened`` says whether the call can have taken effect; HandshakeFailed)

A message says what was wrong, with which value, and what is allowed; attributes carry the same for programs.
"""

from collections.abc import Sequence
from typing import Any


class TickwheelError(Exception):
    """The root of every error that Tickwheel raises on purpose."""


class InvalidArgument(TickwheelError, ValueError):
    """An argument is of the wrong type or outside what is allowed. Nothing was sent.

    With one exception: that a due time is too far ahead, only the server's clock can tell. Then all others of the batch
    are enqueued, and ``results`` holds the result of every message in order (None where it was refused).
    """

    def __init__(self, text: str, results: Sequence[Any] = ()) -> None:
        super().__init__(text)
        self.results = list(results)


class PayloadTooLarge(InvalidArgument):
    """The payload is longer than the limit. Store it elsewhere and enqueue where it is."""


class NamespaceNotFound(TickwheelError):
    """No namespace of this name exists on the server, and who asked makes none."""


class QueueNotFound(TickwheelError):
    """No queue of this name exists, and the namespace or the call does not create it."""


class QueueConfigConflict(TickwheelError):
    """The queue exists with another configuration, or a fixed setting was to change; or the call does not go with its
    configuration: workers cannot dequeue from a queue with a sink.
    """


class QueueBlocked(TickwheelError):
    """The queue is blocked for this operation until somebody unblocks it."""


class IdConflict(TickwheelError):
    """A message of this id exists with other content.

    ``results`` holds, for a batch, the result of every message in order (None where it was in conflict).
    """

    def __init__(self, text: str, results: Sequence[Any] = ()) -> None:
        super().__init__(text)
        self.results = list(results)


class MessageNotFound(TickwheelError):
    """No message of this identity: never enqueued, or its retention is over."""


class InvalidTransition(TickwheelError):
    """The message is in a state that this operation does not start from. ``state`` names it."""

    def __init__(self, text: str, state: str = "") -> None:
        super().__init__(text)
        self.state = state


class LeaseLost(TickwheelError):
    """The token no longer owns the message: the lease expired, or the message was cancelled or finished.

    ``lost`` holds, for a batch, the messages that were refused; all others were done.
    """

    def __init__(self, text: str, lost: Sequence[Any] = ()) -> None:
        super().__init__(text)
        self.lost = list(lost)


class Forbidden(TickwheelError):
    """The server refused the user or password, or the user may not run this command."""


class Unauthenticated(Forbidden):
    """The service does not know who calls: no token, one that it does not know, or one that has expired."""


class NotDurable(TickwheelError):
    """The server cannot give, or did not give, the durability asked for. The call may be sent again."""


class OutOfMemory(TickwheelError):
    """The server is at its memory limit and refused before doing anything."""


class OutboxFull(TickwheelError):
    """The shard's outbox is at its limit: until events are relayed, enqueue, reschedule and redrive are refused.

    Nothing else is, so work that is there can be done.

    ``size`` and ``limit`` are bytes of events on the shard.
    """

    def __init__(self, text: str, size: int = 0, limit: int = 0) -> None:
        super().__init__(text)
        self.size = size
        self.limit = limit


class LimitExceeded(TickwheelError):
    """The service refused for now: too many messages a second, or calls that wait, for a token or a process of it.

    Nothing was done. ``retry_after_ms`` is when the call may be sent again; the client does so within its timeout.
    """

    def __init__(self, text: str, retry_after_ms: int = 0) -> None:
        super().__init__(text)
        self.retry_after_ms = retry_after_ms


class SessionExpired(TickwheelError):
    """A repeated call came later than its session lives: whether the first one took effect is not known."""


class Fenced(TickwheelError):
    """An event process with a newer fence drives this shard. Nothing was changed.

    ``held`` is the epoch that it obeys; None where the refusal does not say it.
    """

    def __init__(self, text: str, held: int | None = None) -> None:
        super().__init__(text)
        self.held = held


class Unavailable(TickwheelError):
    """The server could not be reached, or did not answer in time.

    ``may_have_happened`` is False where the call certainly had no effect.
    """

    def __init__(self, text: str, *, may_have_happened: bool = True) -> None:
        super().__init__(text)
        self.may_have_happened = may_have_happened


class HandshakeFailed(Unavailable):
    """Client and service get no further than hello: one speaks TLS and the other does not, or a certificate is refused.

    Told at once, as to try again would not help. Nothing was sent.
    """

    def __init__(self, text: str, *, may_have_happened: bool = False) -> None:
        super().__init__(text, may_have_happened=may_have_happened)
