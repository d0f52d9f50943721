"""Builds the messages of a dequeue from the entries of a reply of the script."""

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from tickwheel.errors import LeaseLost
from tickwheel.model.message import LeasedMessage
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.settle import fail
from tickwheel.plan import Plan, Request, send_request
from tickwheel.storage import record

M = TypeVar("M", bound=LeasedMessage)
MessageFactory = Callable[[str, bytes, bytes, bytes, bool], M]


def build_messages(
    context: NamespaceContext,
    queue: str,
    shard: int,
    entries: list[tuple[bytes, bytes]],
    now_ms: int,
    sent: float,
    factory: MessageFactory[M],
    exclusive: bool,
) -> Plan[list[M]]:
    """Return the messages. HMGET reads large payloads: in a script, Lua would hash every string that it reads.

    ``entries`` are field and record of each message, ``now_ms`` is the time of the reply by the shard's clock.
    ``sent`` is the monotonic time at which the call was first sent.
    """

    def build(field: bytes, stored: bytes, body: bytes) -> M:
        message = factory(queue, field, stored, body, exclusive)
        message._lease_ms = message._lease_until_ms - now_ms
        message._hold_since(sent)
        return message

    large = [record.body_field(field, stored) for field, stored in entries if stored[1] & record.BODY]
    if not large:
        return [build(field, stored, b"") for field, stored in entries]
    read = yield from send_request(Request(shard, command=("HMGET", context.keys(shard, queue)["bodies"], *large)))
    bodies = dict(zip(large, read.value, strict=True))
    messages = []
    for field, stored in entries:
        body = bodies[record.body_field(field, stored)] if stored[1] & record.BODY else b""
        message = build(field, stored, body or b"")
        if body is None:
            # The message was cancelled after the script had leased it. `fail` frees its exclusive value.
            with suppress(LeaseLost):
                yield from fail(context, message, "its payload is gone", None)
        else:
            messages.append(message)
    return messages
