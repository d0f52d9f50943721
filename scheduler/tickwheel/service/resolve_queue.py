"""Finds the namespace and queue that a request names, and checks the caller's permission for the call."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from tickwheel.errors import InvalidArgument, NamespaceNotFound
from tickwheel.model.validation import plain_name
from tickwheel.service.authorization import ALL_QUEUES, CALL, Role
from tickwheel.service.namespaces import Namespace, Namespaces

R = TypeVar("R")

# The namespace of a request that names none.
DEFAULT: Final = "tw"


def on_queue(handle: Callable[[Any, Any, Namespace, str], Awaitable[R]]) -> Callable[[Any, Any], Awaitable[R]]:
    """Return the handler of an RPC whose requests name a queue. It passes the namespace and the queue to ``handle``."""

    async def handler(handlers: Any, request: Any) -> R:
        return await handle(handlers, request, *await resolve_queue(handlers.namespaces, request))

    return handler


async def resolve_queue(namespaces: Namespaces, request: Any) -> tuple[Namespace, str]:
    """Open the namespace of a request if necessary. Return the namespace, and the name of the request's queue.

    Raises InvalidArgument if the name of the queue or the namespace is invalid, Forbidden if the caller may not make
    the call, and NamespaceNotFound.
    """
    queue = plain_name("a queue's name", request.queue)
    return await resolve_namespace(namespaces, request, queue), queue


async def resolve_queues(namespaces: Namespaces, request: Any) -> tuple[Namespace, list[str]]:
    """Do the same as `resolve_queue` for a request that names several queues.

    Raises InvalidArgument, too, if it names no queue, or a queue twice, and Forbidden if the caller may not make the
    call for one of the queues.
    """
    queues = [plain_name("a queue's name", queue) for queue in request.queues]
    if not queues or len(set(queues)) < len(queues):
        raise InvalidArgument("queues must name at least one queue, and each queue once")
    for queue in queues:
        check_permission(request, queue)
    return await resolve_namespace(namespaces, request, queues[0]), queues


async def resolve_namespace(namespaces: Namespaces, request: Any, queue: str | None = None) -> Namespace:
    """Open the namespace of a request if necessary, and return it. ``queue`` can be `ALL_QUEUES`.

    Raises InvalidArgument if the namespace's name is invalid, Forbidden if the caller may not make the call for the
    namespace and the queue, and NamespaceNotFound.
    """
    check_permission(request, queue)
    try:
        return await namespaces.get(request.namespace)
    except NamespaceNotFound as error:
        raise name_the_creators(request, error) from None


def name_the_creators(request: Any, error: NamespaceNotFound) -> NamespaceNotFound:
    """Return ``error``; for a caller who may not create the namespace, return an error that names those who may."""
    if may_create_namespace(request):
        return error
    return NamespaceNotFound(
        f"there is no namespace {request.namespace or DEFAULT!r} on this server, and token {CALL.get()[0].name!r}"
        " cannot create it: this needs a token with the role 'admin' on all queues, or an operator who starts an"
        " event process or `tickwheel serve` for this namespace"
    )


def check_permission(request: Any, queue: str | None) -> None:
    """Raise Forbidden if the caller of the current call may not make this call; see `Caller.check`.

    Raises InvalidArgument if the namespace's name is invalid.
    """
    caller, role = CALL.get()
    caller.check(role, plain_name("namespace", request.namespace or DEFAULT), queue)


def has_role(role: Role, request: Any, queue: str | None) -> bool:
    """Return whether the caller of the current call has the role in the request's namespace; see `Caller.may`."""
    return CALL.get()[0].may(role, request.namespace or DEFAULT, queue)


def may_create_namespace(request: Any) -> bool:
    """Return whether the caller may create the namespace of the request. A namespace concerns all of its queues."""
    return has_role(Role.ADMIN, request, ALL_QUEUES)


def may_read_payloads(request: Any, queue: str) -> bool:
    """Return whether the caller may read the payloads and results of the queue's messages."""
    return any(has_role(role, request, queue) for role in (Role.CONSUME, Role.ADMIN))
