"""Resume a lease by its token, for example in a process that did not dequeue the message."""

from tickwheel.errors import InvalidArgument, LeaseLost
from tickwheel.model import validation
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.inspect import decode_record
from tickwheel.operations.leased_messages import M, MessageFactory
from tickwheel.operations.locate import PayloadRead, read_message
from tickwheel.plan import Plan
from tickwheel.storage import record

TOKEN_BYTES = 16


def resume_lease(
    context: NamespaceContext,
    queue: str,
    id_: str,
    token: bytes,
    exclusive_value: str | None,
    factory: MessageFactory[M],
) -> Plan[M]:
    """Return the leased message if ``token`` is the token in its record. Raises MessageNotFound or LeaseLost.

    A completed message keeps its token, so its completion can be repeated. A cancelled message that still holds its
    exclusive value keeps its token, too, so its worker can free the value.

    A payload above 1 KiB is read only after the token was compared: the service does not charge this call, so a token
    without a lease could read payloads without limit.
    """
    check_token(token)
    for payload in (PayloadRead.NEVER, PayloadRead.ALWAYS):
        raw, stored, body = yield from read_message(context, queue, id_, exclusive_value, payload)
        message = decode_record(queue, raw, stored, body)
        if not message.flags & record.OWNED or message.token != token:
            raise LeaseLost(
                f"the token does not own message {id_!r} of queue {queue!r}: the lease of this token has ended; the"
                f" message is now {message.state.label}"
            )
        if not message.flags & record.BODY:
            break
    config = yield from context.config(queue)
    field = config.number.to_bytes(2) + raw
    return factory(queue, field, stored, body or b"", exclusive_value is not None)


def check_token(token: object) -> None:
    """Raise InvalidArgument if ``token`` does not have the form of a token."""
    if not isinstance(token, bytes) or len(token) != TOKEN_BYTES:
        raise InvalidArgument(f"token must be the {TOKEN_BYTES} bytes of a lease, not {validation.preview(token)}")
