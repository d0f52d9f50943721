"""Finds the namespace and queue that a request names, and checks the caller's permission for the call."""

from typing import Any

from tickwheel.model.validation import plain_name
from tickwheel.service.authorization import CALL
from tickwheel.service.namespaces import Namespace, Namespaces


async def resolve_queue(namespaces: Namespaces, request: Any) -> tuple[Namespace, str]:
    """Return the open namespace and the queue's name.

    Raises InvalidArgument for an invalid name, Forbidden without permission, and NamespaceNotFound.
    """
    queue = plain_name("a queue's name", request.queue)
    check_permission(request, queue)
    return await namespaces.get(request.namespace), queue


def check_permission(request: Any, queue: str | None) -> None:
    """Raise Forbidden if the caller of the current call lacks the permission for it; see `Caller.check`."""
    caller, role = CALL.get()
    caller.check(role, request.namespace or "tw", queue)
