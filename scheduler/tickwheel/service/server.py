"""One process of the service: answers calls on a port until told to stop; those under way then come to their end."""

import asyncio
import logging
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from grpc_health.v1 import health
from grpc_health.v1.health_pb2 import HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from grpc_reflection.v1alpha import reflection

from tickwheel import limits
from tickwheel.client.settings import Opening
from tickwheel.errors import InvalidArgument, TickwheelError
from tickwheel.redis.asyncio_executor import in_thread
from tickwheel.redis.asyncio_pools import AsyncServerPools
from tickwheel.rpc.methods import METHODS, SERVICES, Method
from tickwheel.rpc.status import DETAILS, status_of
from tickwheel.service import server_options as intake
from tickwheel.service.authentication import Admission
from tickwheel.service.authorization import CALL, Access
from tickwheel.service.call_cost import Count, counted
from tickwheel.service.call_observer import Observing
from tickwheel.service.counters import Figures
from tickwheel.service.message_handlers import MessageHandlers
from tickwheel.service.namespaces import Namespace, Namespaces
from tickwheel.service.queue_handlers import QueueHandlers
from tickwheel.service.token_file import TokenFile
from tickwheel.service.token_quota import Places, Usage

_log = logging.getLogger("tickwheel.service")
_SNAKE: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
# How long calls that are under way may take when the server is told to stop.
DRAIN_S: Final = 10.0


class Server:
    """The service of one Redis or cluster on one address. Use it in an ``async with`` statement."""

    def __init__(
        self,
        opening: Opening,
        address: str,
        *,
        tokens: TokenFile | None = None,
        credentials: grpc.ServerCredentials | None = None,
        shares_port: bool = False,
        connections: int = limits.CONNECTIONS,
        waiting: int = limits.WAITING_CALLS,
        clock: str = "_clock",
    ) -> None:
        """``address`` is host:port; port 0 is any that is free: `port` says which. Without ``tokens`` anybody may do
        all, without ``credentials`` nothing is encrypted. Unless it ``shares_port`` nobody else may listen there. It
        takes so many ``connections``, and so many calls that are ``waiting``. ``clock`` is for tests.
        """
        self._opening = opening
        self._address = address
        self._tokens = tokens
        self._looking: asyncio.Task[None] | None = None
        self._access = Access() if tokens is None else tokens.access
        self._credentials = credentials
        self._options = intake.options(connections, waiting, shares_port=shares_port)
        self._calls = intake.calls(waiting)
        self._places = Places(waiting, "this process of the service")
        self._clock = clock
        self.figures = Figures()
        self._observing = Observing(self.figures)
        self._server: grpc.aio.Server | None = None
        self._health = health.aio.HealthServicer()
        self._namespaces: Namespaces | None = None
        self._messages: MessageHandlers | None = None
        self.port = 0

    @property
    def namespaces(self) -> list[Namespace]:
        """Those that calls have named so far."""
        return [] if self._namespaces is None else self._namespaces.open_ones

    @property
    def scheme(self) -> str:
        """Of the URL that clients take."""
        return "grpc" if self._credentials is None else "grpcs"

    async def __aenter__(self) -> "Server":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Check the server that messages are kept in, and begin to answer."""
        opening = self._opening
        where = await in_thread(opening.open)
        try:
            servers = AsyncServerPools(where, opening.answer_s)
            self._namespaces = Namespaces(opening, servers, self._clock, self.figures)
            await self._namespaces.check()
            self._messages = MessageHandlers(self._namespaces, self._places)
            handlers = {"MessageService": self._messages, "QueueService": QueueHandlers(self._namespaces)}
            self._server = server = grpc.aio.server(options=self._options, maximum_concurrent_rpcs=self._calls)
            methods = {
                METHODS[each.name].path: self._handler(METHODS[each.name], handlers[service.name])
                for service in SERVICES
                for each in service.methods
            }
            server.add_generic_rpc_handlers((Admission(self._access, methods, self._refusing),))
            names = [service.full_name for service in SERVICES]
            for name in ("", *names):
                await self._health.set(name, HealthCheckResponse.SERVING)
            add_HealthServicer_to_server(self._health, server)
            reflection.enable_server_reflection([*names, health.SERVICE_NAME, reflection.SERVICE_NAME], server)
            self.port = (
                server.add_insecure_port(self._address)
                if self._credentials is None
                else server.add_secure_port(self._address, self._credentials)
            )
            await server.start()
            if self._tokens is not None:
                self._looking = asyncio.create_task(self._tokens.run())
        except BaseException:
            await self._let_go()
            raise
        _log.info(
            "serving %s on port %d",
            opening.shown,
            self.port,
            extra={"fields": {"event": "serving", "where": opening.shown, "port": self.port}},
        )

    async def stop(self, seconds: float = DRAIN_S) -> None:
        """Take no more calls; answer those that wait, and give the others so long to end."""
        if self._looking is not None:
            self._looking.cancel()
        await self._health.enter_graceful_shutdown()
        if self._messages is not None:
            self._messages.drain()
        if self._server is not None:
            await self._server.stop(seconds)
        await self._let_go()

    async def _let_go(self) -> None:
        namespaces, self._namespaces = self._namespaces, None
        try:
            if namespaces is not None:
                await namespaces.close()
        finally:
            await in_thread(self._opening.close)

    def _handler(self, method: Method, handlers: object) -> Any:
        handle = getattr(handlers, _SNAKE.sub("_", method.name).lower())
        codec = {
            "request_deserializer": _reader(method.request),
            "response_serializer": method.response.SerializeToString,
        }
        count = counted(method.name)
        around = self._observing.around
        if method.asks_many and method.answers_many:
            return grpc.stream_stream_rpc_method_handler(around(method, self._streaming(handle, count)), **codec)
        if method.answers_many:
            return grpc.unary_stream_rpc_method_handler(around(method, self._answering_each(handle, count)), **codec)
        if method.asks_many:
            return grpc.stream_unary_rpc_method_handler(around(method, self._answering_many(handle, count)), **codec)
        return grpc.unary_unary_rpc_method_handler(around(method, self._answering(handle, count)), **codec)

    def _refusing(self, method: str, error: TickwheelError) -> Any:
        async def answer(_: Any, context: Any) -> None:
            await refuse(context, error)

        # Of a stream the library reads nothing that nobody asks for, whatever the call is to its client.
        return grpc.stream_stream_rpc_method_handler(self._observing.around_refusal(method, answer))

    def _answering(self, handle: Callable[[Any], Awaitable[Any]], count: Count) -> Any:
        async def answer(request: Any, context: Any) -> Any:
            caller, _ = CALL.get()
            try:
                caller.usage.take(count(_readable(request)))
                return await handle(request)
            except Exception as error:
                await refuse(context, error)

        return answer

    def _answering_each(self, handle: Callable[[Any, Any], Awaitable[None]], count: Count) -> Any:
        async def answer(request: Any, context: Any, write: Callable[[Any], Awaitable[None]]) -> None:
            caller, _ = CALL.get()
            try:
                caller.usage.take(count(_readable(request)))
                # A client that does not read makes it last.
                async with caller.as_long_as_it_is_good():
                    await handle(request, write)
            except Exception as error:
                await refuse(context, error)

        return answer

    def _answering_many(self, handle: Callable[[Any], Awaitable[Any]], count: Count) -> Any:
        async def answer(requests: Any, context: Any) -> Any:
            caller, _ = CALL.get()
            try:
                async with caller.waiting_at(self._places):
                    return await handle(_each_readable(requests, caller.usage, count))
            except Exception as error:
                await refuse(context, error)

        return answer

    def _streaming(self, handle: Callable[[Any], Any], count: Count) -> Any:
        # It writes and is no generator: so its task is in here whenever its token is withdrawn.
        async def answer(requests: Any, context: Any, write: Callable[[Any], Awaitable[None]]) -> None:
            caller, _ = CALL.get()
            try:
                async with (
                    caller.waiting_at(self._places),
                    aclosing(handle(_each_readable(requests, caller.usage, count))) as responses,
                ):
                    async for response in responses:
                        await write(response)
            except Exception as error:
                await refuse(context, error)

        return answer


def _reader(kind: Any) -> Callable[[bytes], Any]:
    def read(raw: bytes) -> Any:
        try:
            return kind.FromString(raw)
        except DecodeError as error:
            # Raised here it would be a mistake of ours: the caller would learn nothing, and the log get a traceback.
            return InvalidArgument(f"the request is no {kind.DESCRIPTOR.full_name}: {error}")

    return read


def _readable(request: Any) -> Any:
    if isinstance(request, InvalidArgument):
        raise request
    return request


async def _each_readable(requests: AsyncIterator[Any], usage: Usage, count: Count) -> AsyncIterator[Any]:
    async for request in requests:
        await usage.take_in_turn(count(_readable(request)))
        yield request


async def refuse(context: Any, error: Exception) -> None:
    """End the call with the error. Of one that is a mistake of ours the log has the traceback, its caller a number."""
    if isinstance(error, grpc.aio.BaseError):
        # The client is gone, or has its answer.
        raise error
    if not isinstance(error, TickwheelError):
        number = secrets.token_hex(4)
        fields = {"event": "mistake", "number": number}
        _log.error("a call failed, error number %s", number, exc_info=error, extra={"fields": fields})
        error = TickwheelError(f"the service failed at this call: its log says why, under error number {number}")
    status = status_of(error)
    context.set_trailing_metadata(((DETAILS, status.SerializeToString()),))
    await context.abort(_CODES[status.code], status.message)
