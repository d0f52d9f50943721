"""Finds the namespace and queue that a request names, and checks the caller's permission for the call."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tickwheel.model.validation import plain_name
from tickwheel.service.authorization import CALL
from tickwheel.service.namespaces import Namespace, Namespaces

R = TypeVar("R")


def on_queue(handle: Callable[[Any, Any, Namespace, str], Awaitable[R]]) -> Callable[[Any, Any], Awaitable[R]]:
    """Return the handler of an RPC whose requests name a queue. It passes the namespace and the queue to ``handle``."""

    async def handler(handlers: Any, request: Any) -> R:
        return await handle(handlers, request, *await resolve_queue(handlers.namespaces, request))

    return handler


async def resolve_queue(namespaces: Namespaces, request: Any) -> tuple[Namespace, str]:
    """Open the namespace of a request if necessary. Return the namespace, and the name of the request's queue.

    Raises InvalidArgument if the queue's name is invalid, Forbidden if the caller may not make the call, and
    NamespaceNotFound.
    """
    queue = plain_name("a queue's name", request.queue)
    return await resolve_namespace(namespaces, request, queue), queue


async def resolve_namespace(namespaces: Namespaces, request: Any, queue: str | None = None) -> Namespace:
    """Open the namespace of a request if necessary, and return it.

    Raises Forbidden if the caller may not make the call for the namespace and the queue, and NamespaceNotFound.
    """
    check_permission(request, queue)
    return await namespaces.get(request.namespace)


def check_permission(request: Any, queue: str | None) -> None:
    """Raise Forbidden if the caller of the current call may not make this call; see `Caller.check`."""
    caller, role = CALL.get()
    caller.check(role, request.namespace or "tw", queue)
