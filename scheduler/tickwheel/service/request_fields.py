"""Fields that several requests have."""

from typing import Any

from tickwheel.operations.sessions import RequestId, RequestSessions
from tickwheel.service.authorization import CALL


def request_sessions(request: Any) -> RequestSessions | None:
    """Return the sessions in which a repeated call gets its first answer, or None if the request has no id."""
    if not request.request_id:
        return None
    request_id = RequestId.parse(request.request_id, request_owner())
    # All other fields are equal in a retry. The keys of a session contain the names of its namespace and queue.
    content = type(request)()
    content.CopyFrom(request)
    for name in ("namespace", "queue", "request_id"):
        content.ClearField(name)
    named = request_id.call(request.queue, request.DESCRIPTOR.name, content.SerializeToString(deterministic=True))
    return RequestSessions(named)


def request_owner() -> str:
    """Return the name of the caller's token, to which the caller's request ids belong. "" if the service has no tokens.

    A token that replaces another one under the same name keeps the request ids.
    """
    caller = CALL.get()[0]
    return caller.name if caller.digest else ""


def exclusive_value(request: Any) -> str | None:
    """Return the exclusive value, or None if the request has none."""
    return request.exclusive_value if request.HasField("exclusive_value") else None
