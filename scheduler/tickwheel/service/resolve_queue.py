"""Which namespace and queue a call names, and whether its caller may do this there."""

from typing import Any

from tickwheel.model.validation import plain_name
from tickwheel.service.authorization import CALL
from tickwheel.service.namespaces import Namespace, Namespaces


async def resolve_queue(namespaces: Namespaces, request: Any) -> tuple[Namespace, str]:
    """The namespace, open, and the queue's name. Raises InvalidArgument, Forbidden, NamespaceNotFound."""
    queue = plain_name("a queue's name", request.queue)
    check_permission(request, queue)
    return await namespaces.get(request.namespace), queue


def check_permission(request: Any, queue: str | None) -> None:
    """Raises Forbidden where the caller may not do this."""
    caller, role = CALL.get()
    caller.check(role, request.namespace or "tw", queue)
