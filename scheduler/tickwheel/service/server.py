"""One process of the service: answers calls on a port until told to stop; those under way then come to their end."""

import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from grpc_health.v1 import health
from grpc_health.v1.health_pb2 import HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from grpc_reflection.v1alpha import reflection

from tickwheel.async_io import in_thread
from tickwheel.async_servers import AsyncServerPools
from tickwheel.errors import InvalidArgument, TickwheelError
from tickwheel.opening import Opening
from tickwheel.remote.methods import METHODS, SERVICES, Method
from tickwheel.remote.status import DETAILS, status_of
from tickwheel.service.access import CALL, ROLES, Access, Role
from tickwheel.service.figures import Figures
from tickwheel.service.message_handlers import MessageHandlers
from tickwheel.service.namespaces import Namespace, Namespaces
from tickwheel.service.observing import Observing
from tickwheel.service.queue_handlers import QueueHandlers

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
        access: Access | None = None,
        credentials: grpc.ServerCredentials | None = None,
        shares_port: bool = False,
        clock: str = "_clock",
    ) -> None:
        """``address`` is host:port; port 0 is any that is free: `port` says which. Without ``access`` anybody may do
        all, without ``credentials`` nothing is encrypted. Unless it ``shares_port`` nobody else may listen there.
        ``clock`` is for tests.
        """
        self._opening = opening
        self._address = address
        self._access = access or Access()
        self._credentials = credentials
        # Another process on the port would share its clients unasked.
        self._options = [("grpc.so_reuseport", int(shares_port))]
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
            self._messages = MessageHandlers(self._namespaces)
            handlers = {"MessageService": self._messages, "QueueService": QueueHandlers(self._namespaces)}
            self._server = server = grpc.aio.server(options=self._options)
            for service in SERVICES:
                by = handlers[service.name]
                methods = {each.name: self._handler(METHODS[each.name], by) for each in service.methods}
                server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, methods),))
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
        role = ROLES.get(method.name, Role.LOOK)
        if method.asks_many and method.answers_many:
            answer = self._observing.around(method, self._streaming(handle, role))
            return grpc.stream_stream_rpc_method_handler(answer, **codec)
        if method.asks_many:
            answer = self._observing.around(method, self._answering_many(handle, role))
            return grpc.stream_unary_rpc_method_handler(answer, **codec)
        answer = self._observing.around(method, self._answering(handle, role))
        return grpc.unary_unary_rpc_method_handler(answer, **codec)

    def _answering(self, handle: Callable[[Any], Awaitable[Any]], role: Role) -> Any:
        async def answer(request: Any, context: Any) -> Any:
            try:
                CALL.set((self._access.caller(context.invocation_metadata()), role))
                return await handle(_readable(request))
            except TickwheelError as error:
                await _refuse(context, error)

        return answer

    def _answering_many(self, handle: Callable[[Any], Awaitable[Any]], role: Role) -> Any:
        return self._answering(lambda requests: handle(_each_readable(requests)), role)

    def _streaming(self, handle: Callable[[Any], Any], role: Role) -> Any:
        async def answer(requests: Any, context: Any) -> Any:
            try:
                CALL.set((self._access.caller(context.invocation_metadata()), role))
                async for response in handle(_each_readable(requests)):
                    yield response
            except TickwheelError as error:
                await _refuse(context, error)

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


async def _each_readable(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for request in requests:
        yield _readable(request)


async def _refuse(context: Any, error: TickwheelError) -> None:
    status = status_of(error)
    context.set_trailing_metadata(((DETAILS, status.SerializeToString()),))
    await context.abort(_CODES[status.code], status.message)
