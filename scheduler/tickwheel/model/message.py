"""Messages as callers use them: new messages, the results of enqueue, snapshots, and leased messages."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from struct import Struct, error as StructError
from typing import Any, Self

from tickwheel.errors import DataLoss, InvalidArgument, TickwheelError
from tickwheel.model import validation
from tickwheel.model.json_payload import decode_payload
from tickwheel.model.validation import Duration
from tickwheel.storage.record import (
    BIAS,
    BODY,
    ERROR,
    EXPLICIT,
    FIXED,
    HEAD,
    OVERRIDES,
    OVERRIDES_SECTION,
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
    """A message for `enqueue_many`. The fields are the parameters of `Queue.enqueue`."""

    payload: bytes | str = b""
    id: str | None = None
    delay: Duration | None = None
    due: datetime | None = None
    deadline: datetime | timedelta | None = None
    metadata: Mapping[str, str] | None = None
    lease: Duration | None = None
    max_attempts: int | None = None
    priority: int | None = None
    json: Any = None

    def __setstate__(self, state: tuple[None, dict[str, Any]]) -> None:
        # A pickle of an earlier version lacks the last fields.
        for item in fields(self):
            setattr(self, item.name, state[1].get(item.name, item.default))


@dataclass(slots=True)
class ReceivedMessage(NewMessage):
    """A new message as the service receives it. ``nonce`` identifies the client's call; 0 if the client has none."""

    nonce: int = 0


@dataclass(frozen=True, slots=True)
class EnqueueResult:
    """The result of enqueuing one message, with its current ``state``.

    ``created`` is False if the queue already had the same message.
    """

    id: str
    state: str
    created: bool


@dataclass(frozen=True, slots=True)
class MessageView:
    """A snapshot of a message, as `Queue.get` returns it. The snapshot has no lease, so it cannot settle the message.

    A completed or cancelled message has no payload and no metadata.
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
    """End of invisibility, lease or retention, depending on the state. None while Pending.

    If the message was cancelled while it ran and still holds its exclusive value, ``until`` is the time at which the
    value becomes free, unless a call of the message's worker frees the value earlier."""
    result: str | None = None
    """The result that the worker stored with the completed message."""
    payload_withheld: bool = False
    """Whether the service withheld the payload and the result, because the token lacks the roles ``consume`` and
    ``admin`` on the queue. ``payload`` is then empty and ``result`` None. Always False over ``redis://``."""

    def json(self) -> Any:
        """Return the value of a payload that is JSON. Raises InvalidArgument if the payload is not JSON."""
        return decode_payload(self.queue, self.id, self.payload)

    def __setstate__(self, values: list[Any]) -> None:
        # A pickle of an earlier version lacks `payload_withheld`.
        for item, value in zip(fields(self), [*values, False], strict=False):
            object.__setattr__(self, item.name, value)


class LeasedMessage:
    """A leased message. The subclasses of both clients add the methods that settle the message."""

    __slots__ = (
        "_deadline_ms",
        "_due_ms",
        "_field",
        "_held_until",
        "_lease_ms",
        "_lease_until_ms",
        "_max_attempts",
        "_on_held",
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
    # The time, by `time.monotonic` of this process, until which the lease lasts at least; 0 if unknown.
    _held_until: float
    # Called with the new `_held_until` after the lease was extended.
    _on_held: Callable[[float], object] | None

    def __init__(self, queue: str, field: bytes, record: bytes, body: bytes, exclusive: bool) -> None:
        _, flags, version, attempt, until_high, until_low = HEAD.unpack_from(record)
        self._lease_until_ms = until_high << 32 | until_low
        # Length of the lease when the message was dequeued, by the shard's clock; 0 if unknown.
        self._lease_ms = 0
        self._held_until, self._on_held = 0.0, None
        at = HEAD.size
        self.token = record[at : at + 16]
        at += 17 + record[at + 16]
        _, _, due_high, due_low, _, _ = FIXED.unpack_from(record, at)
        self._due_ms = self._deadline_ms = due_high << 32 | due_low
        at += FIXED.size
        if flags & EXPLICIT:
            self._deadline_ms = _U64.unpack_from(record, at)[0] - BIAS
            at += 8
        # The message's own limit; 0 if the limit is that of the queue, or unknown.
        self._max_attempts = 0
        if flags & OVERRIDES:
            _, self._max_attempts = OVERRIDES_SECTION.unpack_from(record, at)
            at += OVERRIDES_SECTION.size
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
        try:
            self.id, self.exclusive_value = split_name(field[2:], exclusive)
        except UnicodeDecodeError as error:
            raise DataLoss(
                f"the name of a message of queue {queue!r} is damaged, because it is not UTF-8: {field[2:]!r:.300}; run"
                " `tickwheel doctor` to list all damage"
            ) from error

    @classmethod
    def by_lease(
        cls, queue: str, queue_number: int, id: str, exclusive_value: str | None, token: bytes, attempt: int
    ) -> Self:
        """Return a message that consists of its lease only: payload and metadata are empty, times are 0."""
        message = cls.__new__(cls)
        message.id, message.exclusive_value, message.queue = id, exclusive_value, queue
        message.token, message.attempt, message.version = token, max(attempt, 1), 0
        message.payload, message._pairs, message._max_attempts = b"", b"", 0
        message._held_until, message._on_held = 0.0, None
        message._due_ms = message._deadline_ms = message._lease_until_ms = message._lease_ms = 0
        value = None if exclusive_value is None else exclusive_value.encode()
        message._field = _U16.pack(queue_number) + name(id.encode(), value)
        return message

    @property
    def _queue_number(self) -> int:
        """The number of the queue. A queue that is created later under the same name has another number."""
        return int(_U16.unpack_from(self._field)[0])

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata pairs passed to enqueue. Every access returns a new dict. Raises DataLoss for damaged pairs."""
        try:
            return decode_pairs(self._pairs)
        except (UnicodeDecodeError, StructError, IndexError) as error:
            raise DataLoss(
                f"the metadata of message {self.id!r} of queue {self.queue!r} is damaged: {error}; run"
                " `tickwheel doctor` to list all damage"
            ) from error

    def json(self) -> Any:
        """Return the value of a payload that is JSON. Raises InvalidArgument if the payload is not JSON."""
        return decode_payload(self.queue, self.id, self.payload)

    @property
    def due(self) -> datetime:
        """The time before which the message was not delivered, in UTC."""
        return validation.from_ms(self._due_ms)

    @property
    def deadline(self) -> datetime:
        """The urgency of the message, in UTC. Equal to `due` if the caller set no deadline."""
        return validation.from_ms(self._deadline_ms)

    @property
    def lease_until(self) -> datetime:
        """The time at which the lease ends unless it is extended, in UTC, by the shard's clock."""
        return validation.from_ms(self._lease_until_ms)

    def __copy__(self) -> Self:
        copied = type(self).__new__(type(self))
        for slot in (*LeasedMessage.__slots__, "_tickwheel"):
            setattr(copied, slot, getattr(self, slot))
        return copied

    def __deepcopy__(self, _: object) -> Self:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), {name: getattr(self, name) for name in _PICKLED})

    def _hold_since(self, sent: float) -> None:
        """Set `_held_until`. ``sent`` is the monotonic time at which the dequeue was first sent.

        The length of the lease counts from the answer, by the shard's clock, and the answer came after ``sent``.
        """
        self._held_until = sent + self._lease_ms / 1_000

    def _extend_hold(self, until: float) -> None:
        """Set `_held_until` after the lease was extended. An extension never shortens a lease."""
        if until > self._held_until:
            self._held_until = until
            if self._on_held is not None:
                self._on_held(until)

    def __repr__(self) -> str:
        return f"<Message {self.queue}/{self.id} attempt={self.attempt} lease_until={self.lease_until:%FT%T.%fZ}>"


# Another process may be on a host with another clock, and an earlier version does not have these slots.
_PICKLED = tuple(slot for slot in LeasedMessage.__slots__ if slot not in ("_held_until", "_on_held"))


class _DetachedClient:
    """Replaces the client of an unpickled message: the connections stay in the process that dequeued the message."""

    def __getattr__(self, name: str) -> Any:
        raise TickwheelError(
            "this message was pickled and has no client; finish it here by queue.complete_many([message])"
            " or queue.leased(message.id, message.token)"
        )


def _unpickled(kind: type[LeasedMessage], values: dict[str, Any]) -> LeasedMessage:
    message = kind.__new__(kind)
    # A pickle of an earlier version lacks this slot.
    message._max_attempts = 0
    message._held_until, message._on_held = 0.0, None
    for slot, value in values.items():
        setattr(message, slot, value)
    message._tickwheel = _DetachedClient()  # type: ignore[attr-defined]  # in both subclasses
    return message


def label(state: int) -> str:
    """Return the lower-case name of a state by the number that scripts use; 0 is "gone".

    Raises InvalidArgument for any other number: the answer with this number belongs to another call.
    """
    if not 0 <= state < len(_LABELS):
        raise InvalidArgument(f"a state must be 0 to {len(_LABELS) - 1}, not {state}: the answer is of another call")
    return _LABELS[state]
