"""Conversion of messages, leases and results to and from protobuf. Protobuf times and durations are in ms."""

import os
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from tickwheel import limits
from tickwheel.errors import InvalidArgument
from tickwheel.model import message_content, validation
from tickwheel.model.json_payload import encode_payload
from tickwheel.model.message import EnqueueResult, LeasedMessage, MessageView, NewMessage, ReceivedMessage
from tickwheel.model.message_id import new_message_id
from tickwheel.model.priority import priority_deadline_ms
from tickwheel.model.results import Change, Explanation
from tickwheel.model.validation import Duration, WireDuration, WireTimestamp
from tickwheel.storage import record
from tickwheel.storage.record import State
from tickwheel.v1 import message_pb2 as messages, message_service_pb2 as calls

M = TypeVar("M", bound=LeasedMessage)

_STATES: Final = {state.label: messages.State.Value(f"STATE_{state.name}") for state in State}
_LABELS: Final = {number: label for label, number in _STATES.items()}


def state_to_proto(label: str | None) -> Any:
    """Return the protobuf value of a state; unspecified for None and for an unknown name."""
    return _STATES.get(label or "", messages.STATE_UNSPECIFIED)


def state_from_proto(number: int) -> str:
    """Return the name of a state; empty for an unknown value."""
    return _LABELS.get(number, "")


def new_message_to_proto(new: NewMessage) -> messages.NewMessage:
    """Convert a new message, and check everything that does not depend on its queue. Raises InvalidArgument."""
    if new.id is None:
        id_ = new_message_id()
    else:
        validation.message_id(new.id)
        id_ = validation.to_plain_str(new.id)
    content = new.payload if new.json is None else encode_payload(new.json, new.payload)
    payload = message_content.payload(content, limits.PAYLOAD_BYTES_MAX)
    # Retries of the call send the same nonce, so that they receive the first answer.
    proto = messages.NewMessage(id=id_, payload=payload, nonce=int.from_bytes(os.urandom(4)))
    set_times(proto, new.delay, new.due, new.deadline, new.priority)
    if new.lease is not None:
        proto.lease_ms = validation.duration_ms("lease", new.lease, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
    if new.max_attempts is not None:
        proto.max_attempts = validation.integer("max_attempts", new.max_attempts, 1, limits.MAX_ATTEMPTS_MAX)
    if new.metadata is not None:
        proto.metadata.update(message_content.metadata(new.metadata))
    return proto


def set_times(
    proto: Any,
    delay: Duration | None,
    due: datetime | None,
    deadline: datetime | timedelta | None,
    priority: int | None = None,
) -> None:
    """Set the due time (oneof `when`) and the deadline (oneof `urgency`) of a message. Raises InvalidArgument.

    A priority is sent as the deadline that it means, because a service of an earlier version ignores priorities.
    """
    if delay is not None and due is not None:
        raise InvalidArgument("give a delay or a due time, not both")
    when, relative = 0, due is None
    if delay is not None:
        when = proto.delay_ms = validation.duration_ms("delay", delay, 0, limits.DELAY_MS_MAX)
    elif due is not None:
        when = proto.due_ms = validation.due_ms(due)
    ms = None
    if priority is not None:
        ms = priority_deadline_ms(priority, deadline, when)
    elif deadline is not None:
        ms, relative = validation.deadline_ms(deadline)
    if ms is not None:
        setattr(proto, "deadline_in_ms" if relative else "deadline_ms", ms)


def new_message_from_proto(proto: messages.NewMessage) -> ReceivedMessage:
    """Convert a new message. Generates an id if the message has none."""
    delay, due, deadline = times_from_proto(proto)
    lease: Any = WireDuration(proto.lease_ms) if proto.HasField("lease_ms") else None
    return ReceivedMessage(
        proto.payload,
        proto.id or new_message_id(),
        delay,
        due,
        deadline,
        proto.metadata or None,
        lease,
        proto.max_attempts if proto.HasField("max_attempts") else None,
        proto.priority if proto.HasField("priority") else None,
        nonce=proto.nonce,
    )


def duration_from_proto(proto: Any, name: str) -> Any:
    """Return a field in ms as a `WireDuration`, which operations accept like a timedelta; None if it is not set."""
    field = proto.DESCRIPTOR.fields_by_name[name]
    return WireDuration(getattr(proto, name)) if not field.has_presence or proto.HasField(name) else None


def times_from_proto(proto: Any) -> tuple[Any, Any, Any]:
    """Return delay, due time and deadline; None if unset. `WireDuration` and `WireTimestamp` replace timedelta and
    datetime.
    """
    when, urgency = proto.WhichOneof("when"), proto.WhichOneof("urgency")
    return (
        WireDuration(proto.delay_ms) if when == "delay_ms" else None,
        WireTimestamp(proto.due_ms) if when == "due_ms" else None,
        WireTimestamp(proto.deadline_ms)
        if urgency == "deadline_ms"
        else WireDuration(proto.deadline_in_ms)
        if urgency == "deadline_in_ms"
        else None,
    )


def lease_to_proto(message: LeasedMessage) -> messages.Lease:
    """Convert the lease of a message. The lease identifies one delivery of the message."""
    return messages.Lease(
        id=message.id,
        exclusive_value=message.exclusive_value,
        token=message.token,
        queue_number=message._queue_number,
        attempt=message.attempt,
    )


def delivery_to_proto(message: LeasedMessage) -> messages.Delivery:
    """Convert a dequeued message."""
    return messages.Delivery(
        lease=lease_to_proto(message),
        payload=message.payload,
        metadata=message.metadata,
        due_ms=message._due_ms,
        deadline_ms=message._deadline_ms,
        version=message.version,
        lease_until_ms=message._lease_until_ms,
        lease_ms=message._lease_ms,
        max_attempts=message._max_attempts,
    )


def delivery_from_proto(kind: type[M], queue: str, delivery: messages.Delivery) -> M:
    """Convert a dequeued message to an object of class ``kind``."""
    message = lease_from_proto(kind, queue, delivery.lease)
    message.payload = delivery.payload
    message.version = delivery.version
    message._due_ms = delivery.due_ms
    message._deadline_ms = delivery.deadline_ms
    message._lease_until_ms = delivery.lease_until_ms
    message._lease_ms = delivery.lease_ms
    message._max_attempts = delivery.max_attempts
    message._pairs = record.encode_pairs(delivery.metadata) if delivery.metadata else b""
    return message


def lease_from_proto(kind: type[M], queue: str, lease: messages.Lease) -> M:
    """Convert a lease to a message that consists of the lease only."""
    value = optional_field(lease, "exclusive_value")
    return kind.by_lease(queue, lease.queue_number, lease.id, value, lease.token, lease.attempt)


def result_to_proto(result: EnqueueResult) -> messages.EnqueueResult:
    """Convert the result of an enqueue."""
    return messages.EnqueueResult(id=result.id, state=state_to_proto(result.state), created=result.created)


def result_from_proto(proto: messages.EnqueueResult) -> EnqueueResult:
    """Convert the result of an enqueue."""
    return EnqueueResult(proto.id, state_from_proto(proto.state), proto.created)


def change_to_proto(change: Change) -> messages.Change:
    """Convert the result of a cancel, reschedule or redrive."""
    return messages.Change(
        id=change.id,
        state=state_to_proto(change.state),
        version=change.version,
        at_ms=to_ms(change.at),
        changed=change.changed,
    )


def change_from_proto(proto: messages.Change) -> Change:
    """Convert the result of a cancel, reschedule or redrive."""
    return Change(
        proto.id, state_from_proto(proto.state), proto.version, validation.from_ms(proto.at_ms), proto.changed
    )


def message_to_proto(view: MessageView, *, withhold_payload: bool = False) -> messages.Message:
    """Convert a view of a stored message. With ``withhold_payload``, leave out its payload and its result."""
    return messages.Message(
        id=view.id,
        queue=view.queue,
        state=state_to_proto(view.state),
        payload=b"" if withhold_payload else view.payload,
        metadata=view.metadata,
        due_ms=to_ms(view.due),
        deadline_ms=to_ms(view.deadline),
        attempt=view.attempt,
        version=view.version,
        exclusive_value=view.exclusive_value,
        worker=view.worker,
        error=view.error,
        until_ms=None if view.until is None else to_ms(view.until),
        result=None if withhold_payload else view.result,
        payload_withheld=withhold_payload,
    )


def message_from_proto(proto: messages.Message) -> MessageView:
    """Convert a view of a stored message."""
    return MessageView(
        id=proto.id,
        queue=proto.queue,
        state=state_from_proto(proto.state),
        payload=proto.payload,
        metadata=dict(proto.metadata),
        due=validation.from_ms(proto.due_ms),
        deadline=validation.from_ms(proto.deadline_ms),
        attempt=proto.attempt,
        version=proto.version,
        exclusive_value=optional_field(proto, "exclusive_value"),
        worker=proto.worker,
        error=proto.error,
        until=validation.from_ms(proto.until_ms) if proto.HasField("until_ms") else None,
        result=optional_field(proto, "result"),
        payload_withheld=proto.payload_withheld,
    )


def explanation_to_proto(explanation: Explanation) -> calls.ExplainResponse:
    """Convert an explanation of why a message is not running."""
    return calls.ExplainResponse(
        id=explanation.id,
        state=state_to_proto(explanation.state),
        code=explanation.code,
        reason=explanation.reason,
        until_ms=None if explanation.until is None else to_ms(explanation.until),
        ahead=explanation.ahead,
        ahead_in_value=explanation.ahead_in_value,
        holder=explanation.holder,
        worker=explanation.worker,
    )


def explanation_from_proto(proto: calls.ExplainResponse) -> Explanation:
    """Convert an explanation of why a message is not running."""
    until = optional_field(proto, "until_ms")
    return Explanation(
        proto.id,
        state_from_proto(proto.state),
        proto.code,
        proto.reason,
        None if until is None else validation.from_ms(until),
        *(optional_field(proto, name) for name in ("ahead", "ahead_in_value", "holder", "worker")),
    )


def to_ms(moment: datetime) -> int:
    """Return a moment in ms since 1970."""
    return validation.timestamp_ms("time", moment, round_up=False)


def optional_field(proto: Any, name: str) -> Any:
    return getattr(proto, name) if proto.HasField(name) else None
