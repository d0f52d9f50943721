"""One process of the service: answers calls on a port until it is stopped. Calls in flight may then finish."""

import asyncio
import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

import grpc

from tickwheel import limits
from tickwheel.client.local_processes import LocalProcesses
from tickwheel.client.settings import ClientSettings
from tickwheel.errors import TickwheelError
from tickwheel.redis.asyncio_pools import AsyncConnectionPools
from tickwheel.rpc.methods import METHODS, SERVICES, Method
from tickwheel.rpc.request_form import RequestForm
from tickwheel.rpc.status import DETAILS, error_to_status
from tickwheel.runtime.event_loop import run_in_thread
from tickwheel.runtime.log_fields import log_fields
from tickwheel.service import grpc_options
from tickwheel.service.answer_limits import AnswerLimits, Turn
from tickwheel.service.authentication import AuthenticatingHandler
from tickwheel.service.authorization import CALL, TokenStore
from tickwheel.service.call_limits import CallLimits, RequestLimits, WaitLimit
from tickwheel.service.call_observer import CallObserver
from tickwheel.service.counters import Counters
from tickwheel.service.fair_limit import FairLimit
from tickwheel.service.grpc_wakeups import make_server
from tickwheel.service.message_handlers import MessageHandlers
from tickwheel.service.method_table import METHOD_TABLE, MethodRow
from tickwheel.service.namespaces import Namespace, Namespaces
from tickwheel.service.queue_handlers import QueueHandlers
from tickwheel.service.request_reader import RequestReader, take_quota
from tickwheel.service.standard_services import StandardServices
from tickwheel.service.stream_credit import StreamLimit
from tickwheel.service.token_file import TokenFile

_log = logging.getLogger("tickwheel.service")
_SNAKE: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
# Time for calls in flight to finish after the server begins to stop.
DRAIN_S: Final = 10.0
# Time for everything else after the calls in flight have finished: for health checks, and for connections without a
# call. Their clients may be strangers.
_CLOSE_S: Final = 1.0
_CHECK_S: Final = 0.05
# Writes a response of a stream.
Write = Callable[[Any], Awaitable[None]]


class Server:
    """Serves one Redis server or cluster on one address. Use the server in an ``async with`` statement."""

    def __init__(
        self,
        client_settings: ClientSettings,
        address: str,
        *,
        tokens: TokenFile | None = None,
        credentials: grpc.ServerCredentials | None = None,
        shares_port: bool = False,
        connections: int = limits.CONNECTIONS,
        waiting: int = limits.WAITING_CALLS,
        created_shards: int = limits.CREATED_SHARDS,
        clock: str = "_clock",
    ) -> None:
        """``address`` is host:port. With port 0 the system picks a free port, which `port` returns after the start.

        Without ``tokens`` every caller has all rights. Without ``credentials`` connections are not encrypted. Other
        processes can listen on the address only if ``shares_port`` is true. ``connections`` and ``waiting`` limit
        what this process has of both, and ``created_shards`` the shards that a client creates. ``clock`` is for tests.
        """
        self._client_settings = client_settings
        self._processes = LocalProcesses(client_settings)
        self._address = address
        self._tokens = tokens
        self._token_reloader: asyncio.Task[None] | None = None
        self._token_store = TokenStore() if tokens is None else tokens.token_store
        self._credentials = credentials
        self._options = grpc_options.options(connections, waiting, shares_port=shares_port)
        calls = FairLimit(waiting + limits.OTHER_CALLS, "calls in flight", min_share=limits.CALLER_CALLS)
        self._wait_limit = WaitLimit(waiting, calls)
        self._stream_limit = StreamLimit()
        request_limits = RequestLimits()
        self._call_limits = CallLimits(calls, request_limits, calls.limit // 8)
        self._clock, self._created_shards = clock, created_shards
        self.counters = Counters()
        self._answers = AnswerLimits()
        # Calls that read no messages can last as long as a shard does not answer, so they must not take the turns of
        # answers. Their callers may have any number of unread answers.
        self._checks = AnswerLimits()
        self._large_checks = AnswerLimits(0, limits.PAUSE_AFTER_CHECK_S, limits.HANGING_CHECKS_BYTES)
        self._observer = CallObserver(self.counters, self._answers)
        self._server: grpc.aio.Server | None = None
        self._standard_services = StandardServices(
            self._token_store, self._observer, request_limits, _abort_on_error, self._make_error_handler
        )
        self._namespaces: Namespaces | None = None
        self._messages: MessageHandlers | None = None
        self._resources = AsyncExitStack()
        self.port = 0

    @property
    def namespaces(self) -> list[Namespace]:
        """The namespaces that calls have opened so far."""
        return [] if self._namespaces is None else list(self._namespaces.by_name.values())

    @property
    def own_namespace(self) -> str:
        """The namespace that the service drives while nobody else does."""
        return self._client_settings.namespace

    @property
    def waiting_calls(self) -> int:
        """The number of calls that take a place of the limit of waiting calls."""
        return self._wait_limit.in_use

    @property
    def display_url(self) -> str:
        """The name of the Redis server in logs, without a password."""
        return self._client_settings.display_url

    @property
    def scheme(self) -> str:
        """Scheme of the URL for clients."""
        return "grpc" if self._credentials is None else "grpcs"

    async def __aenter__(self) -> "Server":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Check the Redis server that stores the messages, and start to answer calls."""
        client_settings = self._client_settings
        async with AsyncExitStack() as resources:
            server_url = await run_in_thread(self._processes.open)
            resources.push_async_callback(run_in_thread, self._processes.close)
            is_embedded = self._processes.server is not None
            servers = AsyncConnectionPools(server_url, client_settings.answer_s, is_embedded=is_embedded)
            self._namespaces = Namespaces(
                client_settings,
                self._processes,
                servers,
                self._clock,
                self.counters,
                self._answers,
                self._created_shards,
            )
            resources.push_async_callback(self._namespaces.close)
            await self._namespaces.check()
            self._messages = MessageHandlers(self._namespaces, self._wait_limit)
            handlers = {"MessageService": self._messages, "QueueService": QueueHandlers(self._namespaces)}
            self._server = server = make_server(self._options)
            methods = {
                method.name: self._handler(METHODS[method.name], handlers[service.name])
                for service in SERVICES
                for method in service.methods
                if method.name in METHOD_TABLE
            }
            server.add_generic_rpc_handlers(
                (AuthenticatingHandler(self._token_store, methods, self._make_error_handler),)
            )
            server.add_generic_rpc_handlers((self._standard_services,))
            self.port = (
                server.add_insecure_port(self._address)
                if self._credentials is None
                else server.add_secure_port(self._address, self._credentials)
            )
            await server.start()
            if self._tokens is not None:
                self._token_reloader = asyncio.create_task(self._tokens.run())
            self._resources = resources.pop_all()

    async def stop(self, seconds: float = DRAIN_S) -> None:
        """Accept no more calls, answer the waiting ones, give the others ``seconds`` to end, and close everything."""
        if self._token_reloader is not None:
            self._token_reloader.cancel()
        self._standard_services.drain()
        self._answers.is_draining = True
        if self._messages is not None:
            self._messages.drain()
        if self._server is not None:
            await self._stop_server(self._server, seconds)
        self._observer.repeated_calls.close()
        await self._resources.aclose()

    async def end_calls(self) -> None:
        """End the calls in flight now, while `stop` waits for them."""
        if self._server is not None:
            await self._server.stop(0)

    async def _stop_server(self, server: grpc.aio.Server, seconds: float) -> None:
        stopping = asyncio.ensure_future(server.stop(seconds))
        while self._call_limits.calls.total and not stopping.done():
            await asyncio.wait((stopping,), timeout=_CHECK_S)
        # The second stop shortens the time of the first one.
        await server.stop(min(seconds, _CLOSE_S))
        await stopping

    def _handler(self, method: Method, handlers: object) -> Any:
        kinds: dict[tuple[bool, bool], Callable[..., Awaitable[Any]]] = {
            (False, False): self._answer_unary,
            (False, True): self._answer_server_stream,
            (True, False): self._answer_client_stream,
            (True, True): self._answer_bidirectional,
        }
        answer = kinds[method.client_streaming, method.server_streaming]
        handle = getattr(handlers, _SNAKE.sub("_", method.name).lower())
        # For a handler with a stream of requests, the library reads a request only when the handler asks for it.
        make_handler = (
            grpc.stream_stream_rpc_method_handler if method.server_streaming else grpc.stream_unary_rpc_method_handler
        )
        return make_handler(
            self._observer.wrap(
                method,
                _abort_on_error(partial(answer, handle, METHOD_TABLE[method.name])),
                partial(RequestReader, method, RequestForm(method.request), self._call_limits),
            ),
        )

    def _make_error_handler(self, method: str, error: TickwheelError) -> Any:
        async def answer(_: Any, context: Any) -> None:
            await abort_call(context, failure_status(error))

        # A handler with a stream in each direction fits every RPC. For such a handler, the library reads a request only
        # when the handler asks for it, and this handler does not.
        return grpc.stream_stream_rpc_method_handler(self._observer.wrap_rejection(method, answer))

    async def _answer_unary(
        self, handle: Callable[[Any], Awaitable[Any]], row: MethodRow, requests: RequestReader
    ) -> Any:
        caller, _ = CALL.get()
        with requests:
            request = await requests.read_single()
            caller.quota.take(row.cost(request, self._shards))
            size = row.turn_size(request)
            del request
            request = await requests.take_turn(size)
            try:
                if row.answer_bytes:
                    async with Turn(self._limits_of_answer(row, request), row.answer_bytes):
                        answer = await handle(request)
                else:
                    answer = await handle(request)
            finally:
                # A call that its client has cancelled may have taken effect, too.
                if cost := row.cost_at_end(request):
                    caller.quota.charge(cost)
            return answer

    def _limits_of_answer(self, row: MethodRow, request: Any) -> AnswerLimits:
        checks = self._answers if row.reads_content else self._checks
        return self._large_checks if checks is self._checks and len(request.queues) > limits.UNCOUNTED_ITEMS else checks

    def _shards(self, request: Any) -> int:
        assert self._namespaces is not None
        return self._namespaces.count_shards(request)

    async def _answer_server_stream(
        self, handle: Callable[[Any, Write], Awaitable[None]], row: MethodRow, requests: RequestReader, write: Write
    ) -> None:
        caller, _ = CALL.get()
        with requests:
            request = await requests.read_single()
            caller.quota.take(row.cost(request, self._shards))
            # The call can last long if its client reads slowly. Its turn ends early then, and its handler takes others.
            size = row.turn_size(request)
            del request
            request = await requests.take_turn(size)
            async with caller.until_token_expires():
                await handle(request, write)

    async def _answer_client_stream(
        self, handle: Callable[[Any], Awaitable[Any]], row: MethodRow, requests: RequestReader
    ) -> Any:
        caller, _ = CALL.get()
        with requests, self._stream_limit.hold():
            async with caller.hold_wait_slot(self._wait_limit):
                return await handle(take_quota(requests, caller.quota, row, self._shards))

    async def _answer_bidirectional(
        self, handle: Callable[[Any, Write], Awaitable[None]], row: MethodRow, requests: RequestReader, write: Write
    ) -> None:
        # The handler writes the responses. If it yielded them, gRPC would run other code between two responses, and the
        # removal of the token (see `hold_wait_slot`) could interrupt that code instead of the handler.
        caller, _ = CALL.get()
        with requests, self._stream_limit.hold():
            async with caller.hold_wait_slot(self._wait_limit):
                await handle(take_quota(requests, caller.quota, row, self._shards), write)


def _abort_on_error(answer: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Wrap ``answer`` so that an error ends the call with a status.

    Reference cycles are collected late. The library keeps the error that ends a call in a cycle, and so do tasks of the
    call. So this error replaces no other, its traceback begins here, and the reader forgets the request.
    """

    async def handler(requests: RequestReader, context: Any, *write: Write) -> Any:
        try:
            return await answer(requests, *write)
        except Exception as error:
            status = failure_status(error)
            _forget_frames(error)
        except asyncio.CancelledError as error:
            requests.first = None
            _forget_frames(error)
            raise
        requests.first = None
        await abort_call(context, status)

    return handler


def _forget_frames(error: BaseException) -> None:
    error.__traceback__ = error.__context__ = error.__cause__ = None


def failure_status(error: Exception) -> Any:
    """Return the status of a call that the error ends. An unexpected exception is a bug: its traceback is logged under
    a random number, and the caller gets the number. Raises ``error`` if the client has ended the call.
    """
    if isinstance(error, grpc.aio.BaseError):
        # The client has disconnected, or the call has ended already.
        raise error
    if not isinstance(error, TickwheelError):
        number = secrets.token_hex(4)
        _log.error(
            "a call failed because of a bug in the service, error number %s",
            number,
            exc_info=error,
            extra=log_fields("mistake", number=number),
        )
        error = TickwheelError(
            f"the call failed because of a bug in the service, whose log has the details under error number {number}"
        )
    return error_to_status(error)


async def abort_call(context: Any, status: Any) -> None:
    """End the call with the status."""
    context.set_trailing_metadata(((DETAILS, status.SerializeToString()),))
    await context.abort(_CODES[status.code], status.message)
