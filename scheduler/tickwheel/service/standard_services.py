"""The standard services of gRPC: health and reflection. Their calls have limits of their own, so that they take no
place of other calls.

Health needs no token. So each address may have some health checks, whatever other addresses have. Reflection needs a
valid token if the service has tokens.

If the service stops, the calls that watch and those of reflection end. No call waits for the client of another call.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Final

import grpc
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from tickwheel import limits
from tickwheel.errors import TickwheelError
from tickwheel.rpc.methods import SERVICES, Method, methods_of
from tickwheel.rpc.request_form import RequestForm
from tickwheel.service.authorization import CALL, UNKNOWN_CALLER, Role, TokenStore
from tickwheel.service.call_limits import CallLimits, RequestLimits
from tickwheel.service.call_observer import CallObserver
from tickwheel.service.counters import MethodCounters
from tickwheel.service.fair_limit import FairLimit
from tickwheel.service.request_reader import RequestReader, make_late_error, read_until_drained

# The size of a request, which consists of the name of a service or of another symbol.
_REQUEST_BYTES: Final = 1_024
_HEALTH: Final = health_pb2.DESCRIPTOR.services_by_name["Health"]
_REFLECTION: Final = reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"]


class StandardServices(grpc.GenericRpcHandler):
    """Finds the handler of each call of the standard services."""

    def __init__(
        self,
        token_store: TokenStore,
        observer: CallObserver,
        request_limits: RequestLimits,
        abort_on_error: Callable[..., Callable[..., Awaitable[Any]]],
        make_error_handler: Callable[[str, TickwheelError], Any],
    ) -> None:
        """``make_error_handler`` is that of `AuthenticatingHandler`. ``abort_on_error`` wraps the function that answers
        a call, so that an error ends the call with a status.
        """
        self._token_store = token_store
        self._observer = observer
        self._request_limits = request_limits
        self._abort_on_error = abort_on_error
        self._make_error_handler = make_error_handler
        self._drained = asyncio.Event()
        names = [service.full_name for service in SERVICES]
        own = limits.CALLER_CALLS
        checks = FairLimit(limits.HEALTH_CHECKS, "health checks in flight", min_share=own)
        watches = FairLimit(limits.HEALTH_WATCHES, "watching health checks", min_share=own)
        reflections = FairLimit(limits.REFLECTIONS, "calls of reflection in flight", min_share=1)
        servicer = _Health(("", *names), self._drained)
        self._handlers = {
            method.path: self._handler(method, servicer, watches if method.server_streaming else checks)
            for method in methods_of(_HEALTH)
        }
        [method] = methods_of(_REFLECTION)
        reflected = reflection.aio.ReflectionServicer([*names, health.SERVICE_NAME, reflection.SERVICE_NAME])
        self._reflection = method
        # The library has only v1alpha. The messages of v1 are the same.
        self._reflection_paths = frozenset((method.path, method.path.replace(".v1alpha.", ".v1.")))
        self._handlers |= dict.fromkeys(self._reflection_paths, self._handler(method, reflected, reflections))

    def drain(self) -> None:
        """Report that the services stop, and end the calls that watch and those of reflection."""
        self._drained.set()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Return the handler of the RPC, or None if the RPC does not exist."""
        path = handler_call_details.method
        caller = UNKNOWN_CALLER
        if path in self._reflection_paths:
            try:
                caller = self._token_store.authenticate(handler_call_details.invocation_metadata)
            except TickwheelError as error:
                CALL.set((caller, Role.READ))
                return self._make_error_handler(_name(self._reflection), error)
        CALL.set((caller, Role.READ))
        return self._handlers.get(path)

    def _handler(self, method: Method, servicer: Any, calls: FairLimit) -> Any:
        name, handle = _name(method), getattr(servicer, method.name)
        self._observer.counters.methods[name] = MethodCounters()
        form = RequestForm(method.request, _REQUEST_BYTES)
        open_requests = partial(RequestReader, method, form, CallLimits(calls, self._request_limits))
        answer: Callable[..., Awaitable[Any]] = _answer_watch if method.server_streaming else _answer_single
        if method.client_streaming:
            answer = partial(_answer_stream, self._drained)
        answer = self._abort_on_error(answer)

        async def handler(_: Any, context: Any) -> Any:
            return await self._observer.observe(name, context, answer(open_requests(context), context, handle))

        make_handler = (
            grpc.stream_stream_rpc_method_handler if method.server_streaming else grpc.stream_unary_rpc_method_handler
        )
        return make_handler(handler, response_serializer=method.response.SerializeToString)


class _Health:
    """Implements the RPCs of health, for the services with the ``names``.

    The class replaces `HealthServicer` of the library, which holds a lock while it writes to a client: one client that
    reads nothing would block all other watches, and the stop of the service.
    """

    def __init__(self, names: Iterable[str], drained: asyncio.Event) -> None:
        self._names = frozenset(names)
        self._drained = drained

    async def Check(self, request: Any, context: Any) -> Any:
        if request.service not in self._names:
            await context.abort(grpc.StatusCode.NOT_FOUND)
        return self._answer(request.service)

    async def List(self, request: Any, context: Any) -> Any:
        statuses = {name: self._answer(name) for name in self._names}
        return health_pb2.HealthListResponse(statuses=statuses)  # type: ignore[attr-defined]

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        first = self._answer(request.service)
        yield first
        await self._drained.wait()
        last = self._answer(request.service)
        if last != first:
            yield last

    def _answer(self, name: str) -> Any:
        response = health_pb2.HealthCheckResponse
        if name not in self._names:
            return response(status=response.SERVICE_UNKNOWN)
        return response(status=response.NOT_SERVING if self._drained.is_set() else response.SERVING)


async def _answer_single(requests: RequestReader, handle: Any) -> Any:
    with requests:
        return await handle(await _read_single(requests), requests.context)


async def _answer_watch(requests: RequestReader, handle: Any) -> None:
    with requests:
        async for response in handle(await _read_single(requests), requests.context):
            await requests.context.write(response)


async def _answer_stream(drained: asyncio.Event, requests: RequestReader, handle: Any) -> None:
    with requests:
        async for response in handle(read_until_drained(requests, drained), requests.context):
            await requests.context.write(response)


async def _read_single(requests: RequestReader) -> Any:
    try:
        # These calls are few, so each may have a timer of its own (see `Arrivals`).
        async with asyncio.timeout(limits.HEALTH_ARRIVAL_S):
            return await requests.read_single()
    except TimeoutError as error:
        raise make_late_error(limits.HEALTH_ARRIVAL_S) from error


def _name(method: Method) -> str:
    """Return the name of an RPC in metrics and in the log."""
    return method.path.rpartition(".")[2].replace("/", ".")
