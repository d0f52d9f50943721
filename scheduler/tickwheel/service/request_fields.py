"""Fields that several requests have."""

from typing import Any

from tickwheel.operations.sessions import RequestSessions


def request_sessions(request: Any) -> RequestSessions | None:
    """Return the sessions in which a repeated call gets its first answer, or None if the request has no id."""
    return RequestSessions(request.request_id, request.queue) if request.request_id else None


def exclusive_value(request: Any) -> str | None:
    """Return the exclusive value, or None if the request has none."""
    return request.exclusive_value if request.HasField("exclusive_value") else None
