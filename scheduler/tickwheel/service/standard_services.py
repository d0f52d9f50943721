"""The standard services of gRPC: health and reflection. Their calls have limits of their own, so that they take no
place of other calls.

Health needs no token. So each address may have some health checks, whatever other addresses have. Reflection needs a
valid token if the service has tokens.
"""

import asyncio
from collections.abc import Awaitable, Callable
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
from tickwheel.service.request_reader import RequestReader, make_late_error

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
        self._names = [service.full_name for service in SERVICES]
        self._health = health.aio.HealthServicer()
        names = [*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME]
        own = limits.CALLER_CALLS
        checks = FairLimit(limits.HEALTH_CHECKS, "health checks in flight", min_share=own)
        watches = FairLimit(limits.HEALTH_WATCHES, "watching health checks", min_share=own)
        reflections = FairLimit(limits.REFLECTIONS, "calls of reflection in flight", min_share=1)
        self._handlers = {
            method.path: self._handler(method, self._health, watches if method.server_streaming else checks)
            for method in methods_of(_HEALTH)
        }
        [method] = methods_of(_REFLECTION)
        self._reflection = method
        self._handlers[method.path] = self._handler(method, reflection.aio.ReflectionServicer(names), reflections)

    async def start(self) -> None:
        """Report that the services serve."""
        for name in ("", *self._names):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def drain(self) -> None:
        """Report that the services stop."""
        await self._health.enter_graceful_shutdown()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Return the handler of the RPC, or None if the RPC does not exist."""
        path = handler_call_details.method
        caller = UNKNOWN_CALLER
        if path == self._reflection.path:
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
        answer = self._abort_on_error(_answer_stream if method.client_streaming else _answer_single)

        async def handler(_: Any, context: Any) -> Any:
            return await self._observer.observe(name, context, answer(open_requests(context), context, handle))

        make_handler = (
            grpc.stream_stream_rpc_method_handler if method.server_streaming else grpc.stream_unary_rpc_method_handler
        )
        return make_handler(handler, response_serializer=method.response.SerializeToString)


async def _answer_single(requests: RequestReader, handle: Any) -> Any:
    with requests:
        try:
            # These calls are few, so each may have a timer of its own (see `Arrivals`).
            async with asyncio.timeout(limits.HEALTH_ARRIVAL_S):
                request = await requests.read_single()
        except TimeoutError as error:
            raise make_late_error(limits.HEALTH_ARRIVAL_S) from error
        return await handle(request, requests.context)


async def _answer_stream(requests: RequestReader, handle: Any) -> None:
    with requests:
        async for response in handle(requests, requests.context):
            await requests.context.write(response)


def _name(method: Method) -> str:
    """Return the name of an RPC in metrics and in the log."""
    return method.path.rpartition(".")[2].replace("/", ".")
