"""A delay scheduler and priority queue on Redis or Valkey: timing wheel, exclusive queues, exact history."""

from tickwheel.client import Message, Queue, Tickwheel
from tickwheel.embedded import EmbeddedServerError
from tickwheel.errors import (
    Fenced,
    Forbidden,
    HandshakeFailed,
    IdConflict,
    InvalidArgument,
    InvalidTransition,
    LeaseLost,
    LimitExceeded,
    MessageNotFound,
    NamespaceNotFound,
    NotDurable,
    OutboxFull,
    OutOfMemory,
    PayloadTooLarge,
    QueueBlocked,
    QueueConfigConflict,
    QueueNotFound,
    SessionExpired,
    TickwheelError,
    Unauthenticated,
    Unavailable,
)
from tickwheel.model.message import EnqueueResult, MessageView, NewMessage
from tickwheel.model.results import Change, Explanation, ForecastMinute, Lateness

__version__ = "0.1.0"

__all__ = [
    "Change",
    "EmbeddedServerError",
    "EnqueueResult",
    "Explanation",
    "Fenced",
    "Forbidden",
    "ForecastMinute",
    "HandshakeFailed",
    "IdConflict",
    "InvalidArgument",
    "InvalidTransition",
    "Lateness",
    "LeaseLost",
    "LimitExceeded",
    "Message",
    "MessageNotFound",
    "MessageView",
    "NamespaceNotFound",
    "NewMessage",
    "NotDurable",
    "OutOfMemory",
    "OutboxFull",
    "PayloadTooLarge",
    "Queue",
    "QueueBlocked",
    "QueueConfigConflict",
    "QueueNotFound",
    "SessionExpired",
    "Tickwheel",
    "TickwheelError",
    "Unauthenticated",
    "Unavailable",
]
