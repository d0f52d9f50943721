"""Values of the product as the messages of the service, and back; both sides use it. Times are ms there."""

from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from tickwheel import limits
from tickwheel.errors import InvalidArgument
from tickwheel.model import validation as arguments
from tickwheel.model.message import EnqueueResult, LeasedMessage, MessageView, NewMessage
from tickwheel.model.message_id import new_id
from tickwheel.model.validation import MsAt, MsFor
from tickwheel.operations.explain import Explanation
from tickwheel.operations.results import Change
from tickwheel.storage import record
from tickwheel.storage.record import State
from tickwheel.v1 import message_pb2 as messages
from tickwheel.v1 import message_service_pb2 as calls

M = TypeVar("M", bound=LeasedMessage)

_STATES: Final = {state.label: messages.State.Value(f"STATE_{state.name}") for state in State}
_LABELS: Final = {number: label for label, number in _STATES.items()}


def state(label: str | None) -> Any:
    """The number of a state; unspecified for None and for what is no state."""
    return _STATES.get(label or "", messages.STATE_UNSPECIFIED)


def label(number: int) -> str:
    """The name of a state; empty for what is none."""
    return _LABELS.get(number, "")


def new_message(new: NewMessage) -> messages.NewMessage:
    """A message to enqueue, checked as far as can be without its queue. Raises InvalidArgument."""
    if new.id is None:
        id_ = new_id()
    else:
        arguments.message_id(new.id)
        id_ = arguments.plain(new.id)
    made = messages.NewMessage(id=id_, payload=arguments.payload(new.payload, limits.PAYLOAD_BYTES_MAX))
    set_times(made, new.delay, new.due, new.deadline)
    if new.lease is not None:
        made.lease_ms = arguments.duration_ms("lease", new.lease, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
    if new.max_attempts is not None:
        made.max_attempts = arguments.integer("max_attempts", new.max_attempts, 1, limits.MAX_ATTEMPTS_MAX)
    if new.metadata is not None:
        made.metadata.update(arguments.metadata(new.metadata))
    return made


def set_times(made: Any, delay: timedelta | None, due: datetime | None, deadline: datetime | timedelta | None) -> None:
    """Fill `when` and `urgency`."""
    if delay is not None and due is not None:
        raise InvalidArgument("give a delay or a due time, not both")
    if delay is not None:
        made.delay_ms = arguments.duration_ms("delay", delay, 0, limits.DELAY_MS_MAX)
    elif due is not None:
        made.due_ms = arguments.due_ms(due)
    if deadline is not None:
        ms, relative = arguments.deadline_ms(deadline)
        if relative:
            made.deadline_in_ms = ms
        else:
            made.deadline_ms = ms


def given_message(made: messages.NewMessage) -> NewMessage:
    """A message to enqueue."""
    delay, due, deadline = given_times(made)
    lease: Any = MsFor(made.lease_ms) if made.HasField("lease_ms") else None
    return NewMessage(
        made.payload,
        made.id or new_id(),
        delay,
        due,
        deadline,
        made.metadata or None,
        lease,
        made.max_attempts if made.HasField("max_attempts") else None,
    )


def given_ms(made: Any, name: str) -> Any:
    """A field of milliseconds, for who expects a timedelta; None where it is not set."""
    field = made.DESCRIPTOR.fields_by_name[name]
    return MsFor(getattr(made, name)) if not field.has_presence or made.HasField(name) else None


def given_times(made: Any) -> tuple[Any, Any, Any]:
    """Delay, due and deadline of `when` and `urgency`, for who expects timedeltas and datetimes."""
    when, urgency = made.WhichOneof("when"), made.WhichOneof("urgency")
    return (
        MsFor(made.delay_ms) if when == "delay_ms" else None,
        MsAt(made.due_ms) if when == "due_ms" else None,
        None if urgency is None else MsAt(made.deadline_ms) if urgency == "deadline_ms" else MsFor(made.deadline_in_ms),
    )


def lease_of(message: LeasedMessage) -> messages.Lease:
    """What names a delivery."""
    return messages.Lease(
        id=message.id,
        exclusive_value=message.exclusive_value,
        token=message.token,
        queue_number=message._queue_number,
        attempt=message.attempt,
    )


def delivery_of(message: LeasedMessage) -> messages.Delivery:
    """A message that was dequeued."""
    return messages.Delivery(
        lease=lease_of(message),
        payload=message.payload,
        metadata=message.metadata,
        due_ms=message._due_ms,
        deadline_ms=message._deadline_ms,
        version=message.version,
        lease_until_ms=message._lease_until_ms,
        lease_ms=message._lease_ms,
    )


def delivered(kind: type[M], queue: str, delivery: messages.Delivery) -> M:
    """A message that was dequeued."""
    message = held(kind, queue, delivery.lease)
    message.payload = delivery.payload
    message.version = delivery.version
    message._due_ms = delivery.due_ms
    message._deadline_ms = delivery.deadline_ms
    message._lease_until_ms = delivery.lease_until_ms
    message._lease_ms = delivery.lease_ms
    message._pairs = record.encode_pairs(delivery.metadata) if delivery.metadata else b""
    return message


def held(kind: type[M], queue: str, lease: messages.Lease) -> M:
    """A message of which no more is known than its lease."""
    value = lease.exclusive_value if lease.HasField("exclusive_value") else None
    return kind.by_lease(queue, lease.queue_number, lease.id, value, lease.token, lease.attempt)


def result_of(result: EnqueueResult) -> messages.EnqueueResult:
    """What became of a message that was enqueued."""
    return messages.EnqueueResult(id=result.id, state=state(result.state), created=result.created)


def result(found: messages.EnqueueResult) -> EnqueueResult:
    """What became of a message that was enqueued."""
    return EnqueueResult(found.id, label(found.state), found.created)


def change_of(change: Change) -> messages.Change:
    """What a call by id did."""
    return messages.Change(
        id=change.id,
        state=state(change.state),
        version=change.version,
        at_ms=to_ms(change.at),
        changed=change.changed,
    )


def change(found: messages.Change) -> Change:
    """What a call by id did."""
    return Change(found.id, label(found.state), found.version, arguments.from_ms(found.at_ms), found.changed)


def message_of(view: MessageView) -> messages.Message:
    """A message as it stands."""
    return messages.Message(
        id=view.id,
        queue=view.queue,
        state=state(view.state),
        payload=view.payload,
        metadata=view.metadata,
        due_ms=to_ms(view.due),
        deadline_ms=to_ms(view.deadline),
        attempt=view.attempt,
        version=view.version,
        exclusive_value=view.exclusive_value,
        worker=view.worker,
        error=view.error,
        until_ms=None if view.until is None else to_ms(view.until),
        result=view.result,
    )


def view(found: messages.Message) -> MessageView:
    """A message as it stands."""
    return MessageView(
        id=found.id,
        queue=found.queue,
        state=label(found.state),
        payload=found.payload,
        metadata=dict(found.metadata),
        due=arguments.from_ms(found.due_ms),
        deadline=arguments.from_ms(found.deadline_ms),
        attempt=found.attempt,
        version=found.version,
        exclusive_value=found.exclusive_value if found.HasField("exclusive_value") else None,
        worker=found.worker,
        error=found.error,
        until=arguments.from_ms(found.until_ms) if found.HasField("until_ms") else None,
        result=given(found, "result"),
    )


def explanation_of(told: Explanation) -> calls.ExplainResponse:
    """Why a message is not running."""
    return calls.ExplainResponse(
        id=told.id,
        state=state(told.state),
        code=told.code,
        reason=told.reason,
        until_ms=None if told.until is None else to_ms(told.until),
        ahead=told.ahead,
        ahead_in_value=told.ahead_in_value,
        holder=told.holder,
        worker=told.worker,
    )


def explanation(found: calls.ExplainResponse) -> Explanation:
    """Why a message is not running."""
    until = given(found, "until_ms")
    return Explanation(
        found.id,
        label(found.state),
        found.code,
        found.reason,
        None if until is None else arguments.from_ms(until),
        *(given(found, name) for name in ("ahead", "ahead_in_value", "holder", "worker")),
    )


def to_ms(moment: datetime) -> int:
    """A moment in ms since 1970."""
    return arguments.moment_ms("time", moment, up=False)


def given(found: Any, name: str) -> Any:
    return getattr(found, name) if found.HasField(name) else None
