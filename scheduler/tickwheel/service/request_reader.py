"""Reads the requests of a call. gRPC passes them as bytes, so that their place, size and fields are checked before they
are parsed.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import grpc

from tickwheel import limits
from tickwheel.errors import InvalidArgument, LimitExceeded
from tickwheel.model.validation import plain_name
from tickwheel.rpc.methods import Method
from tickwheel.rpc.request_form import RequestForm
from tickwheel.runtime.event_loop import abandon
from tickwheel.service.call_limits import CallLimits, name_caller
from tickwheel.service.method_table import MethodRow, Shards, one_shard
from tickwheel.service.token_quota import RETRY_AFTER_MS, TokenQuota
from tickwheel.storage.trace_context import TRACEPARENT
from tickwheel.v1.message_service_pb2 import EnqueueRequest

T = TypeVar("T")

# A parsed request takes about sixteen times its bytes if its fields are short.
_PARSED_BYTES: Final = 16
# A request whose call can last as long as its client does not read the responses is counted if it is larger, or if it
# has more items than `UNCOUNTED_ITEMS`. An item takes about these bytes.
_UNCOUNTED_WHILE_UNREAD: Final = 1_024
_ITEM_BYTES: Final = 128
# A caller has one empty request of a stream processed in this time.
_EMPTY_REQUEST_S: Final = 0.005
# The rounds of the event loop between the end of a call and that of its turn. In a round, the loop accepts new calls.
# So it accepts those of others even if each call of a caller takes the loop for some ms.
_ROUNDS_AFTER_CALL: Final = 6
# The thread that parses the requests with many fields. While it runs, the event loop waits up to this time for the
# interpreter in each round. With the default of 5 ms, the calls of other callers took seven times as long.
_SWITCH_S: Final = 0.0005
_PARSER: Final = ThreadPoolExecutor(1, "tickwheel-parser", sys.setswitchinterval, (_SWITCH_S,))


@dataclass(frozen=True, slots=True)
class QueueName:
    """The namespace and the queue that a request names. Each may be empty."""

    namespace: str
    queue: str

    @classmethod
    def of(cls, request: Any) -> "QueueName":
        """Return the names of a request. Raises InvalidArgument for an invalid name, which can be a long text."""
        namespace, queue = request.namespace, request.queue
        return cls(
            namespace and plain_name("a namespace's name", namespace), queue and plain_name("a queue's name", queue)
        )


class RequestReader:
    """The requests of one call. Read them inside a ``with`` block, which takes a place for the call, and holds what a
    large request takes.

    Iterate over the requests of a stream; `read_single` returns the request of any other call. ``first`` is that
    request. For a stream, ``first`` is what the caller of this class keeps of the first request: the names in it.
    Messages without a trace get ``trace``.
    """

    def __init__(self, method: Method, form: RequestForm, call_limits: CallLimits, context: Any) -> None:
        self.first: Any = None
        self.trace: dict[str, str] = {}
        self._method = method
        self._form = form
        self._limits = call_limits
        self.context = context
        # The name under which the bytes of a large request are held.
        self._sender = ""
        self._held_bytes = 0
        self._ends_of_turns: list[Callable[[], None]] = []
        self._has_ended = False
        # The current request until its turn begins, or its bytes: see `forget_items`.
        self._request: Any = None
        self._raw = b""

    def __enter__(self) -> "RequestReader":
        """Take a place. Raises LimitExceeded if the caller has too many calls."""
        self._limits.take_place(self.context)
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended = True
        self._put_back(_ROUNDS_AFTER_CALL)

    async def read_single(self) -> Any:
        """Return the request of a call without a stream of requests.

        Raises LimitExceeded if the request does not arrive in time, or if the large requests of the caller take too
        many bytes. Raises InvalidArgument if the request is invalid.
        """
        try:
            raw = await self._limits.requests.arrivals.read(self.context)
        except TimeoutError as error:
            raise make_late_error(limits.REQUEST_ARRIVAL_S) from error
        if raw is grpc.aio.EOF:
            raise InvalidArgument("the client ended the call without a request")
        if len(raw) <= limits.UNCOUNTED_REQUEST_BYTES:
            if self._method.server_streaming and len(raw) > _UNCOUNTED_WHILE_UNREAD:
                self._hold_bytes(len(raw) * _PARSED_BYTES)
            self._request = self._parse(raw)
        else:
            self._form.check_size(raw)
            self._hold_bytes(len(raw))
            self._request = await self._parse_large(raw)
        self.first = self._request
        return self._request

    def __aiter__(self) -> "RequestReader":
        return self

    async def __anext__(self) -> Any:
        """Return the next request of a stream. Raises InvalidArgument if the request is invalid.

        Wait while the large requests of the caller take too many bytes: flow control then slows the client down.
        """
        self._put_back()
        raw = await self._limits.requests.copies.read(self.context)
        if raw is grpc.aio.EOF:
            raise StopAsyncIteration
        if len(raw) <= limits.UNCOUNTED_REQUEST_BYTES:
            self._request = self._parse(raw)
            return self._request
        self._form.check_size(raw)
        self._stop_after_end()
        await self._limits.requests.bytes.wait(name_caller(self.context), len(raw))
        self._hold_bytes(len(raw))
        self._request = await self._parse_large(raw)
        return self._request

    async def _parse_large(self, raw: bytes) -> Any:
        requests = self._limits.requests
        async with requests.parsing_turns.of(self._sender), requests.parsing:
            # Let the event loop serve other calls between two large requests.
            await asyncio.sleep(0)
            if self._form.has_few_fields(raw):
                return self._parse(raw, has_few_fields=True)
            # The event loop serves other calls meanwhile.
            return await asyncio.get_running_loop().run_in_executor(_PARSER, self._parse, raw)

    def _parse(self, raw: bytes, *, has_few_fields: bool = False) -> Any:
        request = self._form.parse(raw, has_few_fields=has_few_fields)
        # This search takes 4 ms for 4 MiB. The fields of a large request are counted, so few are unknown.
        if len(raw) <= limits.UNCOUNTED_REQUEST_BYTES or may_wait(self._method):
            request.DiscardUnknownFields()
            if request.ByteSize() != len(raw):
                # Fields that are unknown or occur twice take memory as long as the request exists.
                request = self._method.request.FromString(request.SerializeToString())
        if self.trace:
            _inherit_trace(request, self.trace)
        return request

    async def take_turn(self, size: int) -> Any:
        """Wait until the process may process the current request, and return the request. Do this after all other
        waits. ``size`` is about the number of items: see `MethodRow`. A small request with few items need not wait.

        Keep no reference to the request meanwhile: see `forget_items`.
        """
        # A call with a stream of responses alone can last as long as its client does not read them.
        may_be_unread = self._method.server_streaming and not self._method.client_streaming
        if may_be_unread and not self._held_bytes and size > limits.UNCOUNTED_ITEMS:
            self._hold_bytes(size * _ITEM_BYTES)
        if self._held_bytes and not may_be_unread:
            turns = self._limits.requests.turns(self._sender)
            await turns.acquire()
            self._ends_of_turns.append(turns.release)
        if size > limits.UNCOUNTED_ITEMS:
            turn = self._limits.requests.item_turns.turn(name_caller(self.context), size)
            if not turn.begin_now():
                self.forget_items(size)
                await turn.begin()
            self._ends_of_turns.append(turn.end)
        self._stop_after_end()
        request, self._request = self._request, None
        if request is None:
            request, self._raw = self._method.request.FromString(self._raw), b""
            if not self._method.client_streaming:
                self.first = request
        return request

    def forget_items(self, size: int) -> None:
        """Keep only the bytes of the current request until its turn begins, if the request is small and has many items:
        they can take more than fifty times its bytes.
        """
        if self._request is not None and size > limits.UNCOUNTED_ITEMS and not self._held_bytes:
            self._raw, self._request = self._request.SerializeToString(), None
            if not self._method.client_streaming:
                self.first = None

    async def pace(self) -> None:
        """Wait because the current request of a stream is empty: a caller can send many such requests at no cost."""
        async with self._limits.requests.item_turns.turn(name_caller(self.context), limits.CALLER_ITEMS):
            await asyncio.sleep(_EMPTY_REQUEST_S)
        self._stop_after_end()

    def _hold_bytes(self, count: int) -> None:
        self._stop_after_end()
        self._sender = name_caller(self.context)
        self._limits.requests.bytes.take(self._sender, count)
        self._held_bytes = count

    def _stop_after_end(self) -> None:
        """End the task that reads the requests of a stream, if the call has ended: nobody would put back what the
        request takes.
        """
        if self._has_ended:
            self._put_back()
            raise asyncio.CancelledError

    def _put_back(self, rounds: int = 0) -> None:
        """End what the current request holds, because the call is done with the request. Its turns end after this
        number of rounds of the event loop.
        """
        self._request, self._raw = None, b""
        if self._held_bytes:
            self._limits.requests.bytes.put_back(self._sender, self._held_bytes)
            self._held_bytes = 0
        while self._ends_of_turns:
            _call_after_rounds(rounds, self._ends_of_turns.pop())


async def read_until_drained(requests: AsyncIterator[T], drained: asyncio.Event) -> AsyncIterator[T]:
    """Yield the requests of a stream until the client ends the stream or the drain begins.

    While this function waits for a request, it keeps no earlier one, which may be large. Nor may its caller.
    """
    drain = asyncio.ensure_future(drained.wait())
    try:
        while True:
            request = asyncio.ensure_future(anext(requests, None))
            try:
                await asyncio.wait((request, drain), return_when=asyncio.FIRST_COMPLETED)
                if drained.is_set() or (received := request.result()) is None:
                    return
            finally:
                # If the call has ended, the read may fail before the cancellation reaches it.
                abandon(request)
            yield received
            del received
    finally:
        drain.cancel()


def make_late_error(seconds: float) -> LimitExceeded:
    """Return the error of a call whose request did not arrive within ``seconds``."""
    return LimitExceeded(
        f"the request did not arrive within {seconds:g} s after the headers of the call: the call had no effect; send"
        " smaller requests over a slow connection",
        RETRY_AFTER_MS,
    )


def may_wait(method: Method) -> bool:
    """Return whether a call of the method may wait for messages, and keeps its request meanwhile."""
    return "wait_ms" in method.request.DESCRIPTOR.fields_by_name or (
        method.client_streaming and method.server_streaming
    )


def _inherit_trace(request: Any, trace: dict[str, str]) -> None:
    """Add the trace of the call to messages without a trace, for example messages of clients that do not trace."""
    new = getattr(request, "messages", None) or ([request.message] if isinstance(request, EnqueueRequest) else ())
    for message in new:
        if TRACEPARENT not in message.metadata:
            message.metadata.update(trace)


def _call_after_rounds(rounds: int, function: Callable[[], None]) -> None:
    """Call the function after this number of rounds of the event loop."""
    if rounds:
        asyncio.get_running_loop().call_soon(_call_after_rounds, rounds - 1, function)
    else:
        function()


async def take_quota(requests: RequestReader, quota: TokenQuota, row: MethodRow, shards: Shards) -> AsyncIterator[Any]:
    """Yield the requests of a stream, each when the caller's rate allows its cost."""
    async for request in requests:
        if requests.first is None:
            requests.first = QueueName.of(request)
        else:
            # Only the first request names the namespace.
            shards = one_shard
        cost, size = row.cost(request, shards), row.turn_size(request)
        if not size and not getattr(request, "credit", 0):
            await requests.pace()
        del request
        requests.forget_items(size)
        await quota.wait_and_take(cost)
        request = await requests.take_turn(size)
        yield request
        # The stream may wait long for the next one.
        del request
