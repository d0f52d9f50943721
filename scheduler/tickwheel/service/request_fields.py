"""Fields that several requests have."""

import asyncio
from typing import Any, Final

from tickwheel.operations.sessions import RequestId, RequestSessions, begin_digest
from tickwheel.service.authorization import CALL

# Bytes that are added to a digest without a pause. This takes 0.4 to 1 ms.
_DIGESTED_AT_ONCE: Final = 256 * 1024


async def request_sessions(request: Any) -> RequestSessions | None:
    """Return the sessions in which a repeated call gets its first answer, or None if the request has no id.

    The event loop runs other tasks between the parts of a large request.
    """
    if not request.request_id:
        return None
    request_id = RequestId.parse(request.request_id, request_owner())
    # All other fields are equal in a retry. The keys of a session contain the names of its namespace and queue.
    content = type(request)()
    content.CopyFrom(request)
    for name in ("namespace", "queue", "request_id"):
        content.ClearField(name)
    raw = memoryview(content.SerializeToString(deterministic=True))
    digest = begin_digest(request.DESCRIPTOR.name)
    for first in range(0, len(raw), _DIGESTED_AT_ONCE):
        if len(raw) > _DIGESTED_AT_ONCE:
            await asyncio.sleep(0)
        digest.update(raw[first : first + _DIGESTED_AT_ONCE])
    return RequestSessions(request_id.call_of(request.queue, digest))


def request_owner() -> str:
    """Return the name of the caller's token, to which the caller's request ids belong. "" if the service has no tokens.

    A token that replaces another one under the same name keeps the request ids.
    """
    caller = CALL.get()[0]
    return caller.name if caller.digest else ""


def exclusive_value(request: Any) -> str | None:
    """Return the exclusive value, or None if the request has none."""
    return request.exclusive_value if request.HasField("exclusive_value") else None
