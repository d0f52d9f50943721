"""What callers give and get: new messages, results, and messages as they were read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from struct import Struct
from typing import Any, Self

from tickwheel.errors import TickwheelError
from tickwheel.model import validation
from tickwheel.storage.record import (
    BIAS,
    BODY,
    ERROR,
    EXPLICIT,
    FIXED,
    HEAD,
    OVERRIDES,
    PAIRS,
    State,
    decode_pairs,
    name,
    split_name,
)

_U16 = Struct(">H")
_U64 = Struct(">Q")
_LABELS = ("gone", *(state.label for state in State))


@dataclass(slots=True)
class NewMessage:
    """A message to enqueue, for `enqueue_many`; the fields are the parameters of `Queue.enqueue`."""

    payload: bytes = b""
    id: str | None = None
    delay: timedelta | None = None
    due: datetime | None = None
    deadline: datetime | timedelta | None = None
    metadata: Mapping[str, str] | None = None
    lease: timedelta | None = None
    max_attempts: int | None = None


@dataclass(frozen=True, slots=True)
class EnqueueResult:
    """``created`` is False where the same message was there before; ``state`` is where it stands."""

    id: str
    state: str
    created: bool


@dataclass(frozen=True, slots=True)
class MessageView:
    """A message as `Queue.get` found it: a snapshot, without the right to finish it.

    Payload and metadata are gone once a message is completed or cancelled.
    """

    id: str
    queue: str
    state: str
    payload: bytes
    metadata: dict[str, str]
    due: datetime
    deadline: datetime
    attempt: int
    version: int
    exclusive_value: str | None = None
    worker: str = ""
    error: str = ""
    until: datetime | None = field(default=None)
    """Invisible until then, leased until then, or kept until then; None while Pending.

    Cancelled while it ran and holding its exclusive value: until then, unless its worker calls before."""
    result: str | None = None
    """What it was completed with."""


class LeasedMessage:
    """A message that this worker holds the lease of. The clients add what can be done with it."""

    __slots__ = (
        "_deadline_ms",
        "_due_ms",
        "_field",
        "_lease_ms",
        "_lease_until_ms",
        "_pairs",
        "attempt",
        "exclusive_value",
        "id",
        "payload",
        "queue",
        "token",
        "version",
    )  # fmt: skip

    id: str
    queue: str
    payload: bytes
    attempt: int
    version: int
    token: bytes
    exclusive_value: str | None

    def __init__(self, queue: str, field: bytes, record: bytes, body: bytes, exclusive: bool) -> None:
        _, flags, version, attempt, until_high, until_low = HEAD.unpack_from(record)
        self._lease_until_ms = until_high << 32 | until_low
        # How long it was from when it was taken, by the shard's clock; 0 where that is not known.
        self._lease_ms = 0
        at = HEAD.size
        self.token = record[at : at + 16]
        at += 17 + record[at + 16]
        _, _, due_high, due_low, _, _ = FIXED.unpack_from(record, at)
        self._due_ms = self._deadline_ms = due_high << 32 | due_low
        at += FIXED.size
        if flags & EXPLICIT:
            self._deadline_ms = _U64.unpack_from(record, at)[0] - BIAS
            at += 8
        if flags & OVERRIDES:
            at += 6
        if flags & ERROR:
            at += 2 + _U16.unpack_from(record, at)[0]
        self._pairs = b""
        if flags & PAIRS:
            end = at + 11 + _U16.unpack_from(record, at + 9)[0]
            self._pairs = record[at + 11 : end]
            at = end
        self.payload = body if flags & BODY else record[at:]
        self.queue = queue
        self.version = version
        self.attempt = attempt
        self._field = field
        self.id, self.exclusive_value = split_name(field[2:], exclusive)

    @classmethod
    def by_lease(
        cls, queue: str, queue_number: int, id: str, exclusive_value: str | None, token: bytes, attempt: int
    ) -> Self:
        """A message of which no more is known than its lease."""
        message = cls.__new__(cls)
        message.id, message.exclusive_value, message.queue = id, exclusive_value, queue
        message.token, message.attempt, message.version = token, max(attempt, 1), 0
        message.payload = message._pairs = b""
        message._due_ms = message._deadline_ms = message._lease_until_ms = message._lease_ms = 0
        value = None if exclusive_value is None else exclusive_value.encode()
        message._field = _U16.pack(queue_number) + name(id.encode(), value)
        return message

    @property
    def _queue_number(self) -> int:
        """Of its queue, and of no later one of the name."""
        return int(_U16.unpack_from(self._field)[0])

    @property
    def metadata(self) -> dict[str, str]:
        """The pairs given at enqueue; a new dict each time."""
        return decode_pairs(self._pairs)

    @property
    def due(self) -> datetime:
        """When it could first be delivered, in UTC."""
        return validation.from_ms(self._due_ms)

    @property
    def deadline(self) -> datetime:
        """Its urgency, in UTC; `due` where none was given."""
        return validation.from_ms(self._deadline_ms)

    @property
    def lease_until(self) -> datetime:
        """When the lease ends unless it is extended, in UTC, by the shard's clock."""
        return validation.from_ms(self._lease_until_ms)

    def __copy__(self) -> Self:
        copied = type(self).__new__(type(self))
        for slot in (*LeasedMessage.__slots__, "_tickwheel"):
            setattr(copied, slot, getattr(self, slot))
        return copied

    def __deepcopy__(self, _: object) -> Self:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), {name: getattr(self, name) for name in LeasedMessage.__slots__})

    def __repr__(self) -> str:
        return f"<Message {self.queue}/{self.id} attempt={self.attempt} lease_until={self.lease_until:%FT%T.%fZ}>"


class _DetachedClient:
    """In place of the client, in a message that was pickled: its connections stay where it was dequeued."""

    def __getattr__(self, name: str) -> Any:
        raise TickwheelError(
            "this message was dequeued by another client, and pickled: finish it here by queue.complete_many([message])"
            " or queue.leased(message.id, message.token)"
        )


def _unpickled(kind: type[LeasedMessage], values: dict[str, Any]) -> LeasedMessage:
    message = kind.__new__(kind)
    for slot, value in values.items():
        setattr(message, slot, value)
    message._tickwheel = _DetachedClient()  # type: ignore[attr-defined]  # both clients' messages have one
    return message


def label(state: int) -> str:
    """The lower-case name of a state as scripts number it."""
    return _LABELS[state]
