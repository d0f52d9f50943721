"""Observes each call of the service: updates its metrics, opens its span, and logs it if it was rejected or failed."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Final

import grpc

from tickwheel import tracing
from tickwheel.rpc.methods import Method
from tickwheel.service.answer_limits import AnswerLimits
from tickwheel.service.authorization import CALL
from tickwheel.service.call_limits import name_caller
from tickwheel.service.counters import Counters
from tickwheel.service.method_table import METHOD_TABLE
from tickwheel.service.repeated_calls import CallKind, RepeatedCalls
from tickwheel.service.request_reader import RequestReader

_log = logging.getLogger("tickwheel.service")
# `context.code()` returns the enum or its number, depending on the version of grpc.
_NAMES: Final = {known: code.name for code in grpc.StatusCode for known in (code, code.value[0])}
# Errors that the caller cannot fix: logged as warnings.
_FAILED: Final = {"UNKNOWN", "INTERNAL", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED", "DATA_LOSS"}
# The call succeeded, or its client disconnected or stopped waiting: logged at level DEBUG.
_QUIET: Final = {"OK", "CANCELLED", "DEADLINE_EXCEEDED"}
# Error texts with these codes may quote values from the request: logged only if DEBUG is enabled.
_QUOTING_CODES: Final = {"INVALID_ARGUMENT"}


class CallObserver:
    """Wraps the handlers of one process. Calls have spans if a tracer provider is set when the observer is created."""

    def __init__(self, counters: Counters, answers: AnswerLimits) -> None:
        self.counters = counters
        self._answers = answers
        self.repeated_calls = RepeatedCalls()
        self._traces = tracing.is_on()

    def wrap(self, method: Method, answer: Any, open_requests: Callable[[Any], RequestReader]) -> Any:
        """Return the handler that grpc calls for the method. The handler calls ``answer`` with the requests, which
        ``open_requests`` returns for a context, and the context. If the method streams responses, ``answer`` also
        receives a function that writes a response, and that several tasks may call at a time. The handler passes each
        response to the library as bytes, and counts them.
        """
        # A call with two streams has no span, because it can last for days.
        if self._traces and not (method.client_streaming and method.server_streaming):
            answer = (_trace_server_stream if method.server_streaming else _trace_call)(method, answer)
        wrap = self._wrap_stream if method.server_streaming else self._wrap_unary
        return wrap(method, answer, open_requests)

    def wrap_rejection(self, name: str, answer: Any) -> Any:
        """Return a handler that rejects every call of the RPC ``name``. ``answer`` sends the error."""

        async def handler(request: Any, context: Any) -> None:
            await self.observe(name, context, answer(request, context))

        return handler

    def _wrap_unary(self, method: Method, answer: Any, open_requests: Callable[[Any], RequestReader]) -> Any:
        row, counters = METHOD_TABLE[method.name], self.counters.messages

        async def handler(_: Any, context: Any) -> bytes:
            requests = open_requests(context)
            response = await self.observe(row.name, context, answer(requests, context))
            if row.action:
                first = requests.first
                counters[row.action].add(first.namespace, first.queue, row.count(first, response))
            # The library keeps what this function returns until the client has read the answer.
            raw: bytes = response.SerializeToString()
            self._answers.count(raw)
            return raw

        return handler

    def _wrap_stream(self, method: Method, answer: Any, open_requests: Callable[[Any], RequestReader]) -> Any:
        row = METHOD_TABLE[method.name]
        counter = self.counters.messages[row.action]

        async def handler(_: Any, context: Any) -> None:
            requests = open_requests(context)
            # gRPC allows one write at a time.
            writing = asyncio.Lock()

            def write(response: Any) -> Awaitable[None]:
                # Only the bytes are kept until the client reads: the response can take thirty times as much.
                answered = _split_response(method, requests.first, response)
                parts = [(item.namespace, item.queue, row.count(item, part)) for item, part in answered]
                return write_bytes(response.SerializeToString(), parts)

            async def write_bytes(raw: bytes, parts: Sequence[tuple[str, str, int]]) -> None:
                # A response takes memory while it waits for the responses before it, too.
                with self._answers.count_written(len(raw)):
                    async with writing:
                        for part in parts:
                            counter.add(*part)
                        await context.write(raw)

            await self.observe(row.name, context, answer(requests, context, write))

        return handler

    async def observe(self, name: str, context: Any, response: Awaitable[Any]) -> Any:
        """Await the response of a call of the RPC ``name``, and count and log the call."""
        started, code, calls = perf_counter(), "OK", self.counters.methods[name]
        calls.in_flight += 1
        try:
            return await response
        except BaseException as error:
            code = _code(context, error)
            raise
        finally:
            seconds = perf_counter() - started
            calls.record_end(code, seconds)
            self._log_call(name, code, context, seconds)

    def _log_call(self, method: str, code: str, context: Any, seconds: float) -> None:
        level = logging.DEBUG if code in _QUIET else logging.WARNING if code in _FAILED else logging.INFO
        if not _log.isEnabledFor(level):
            return
        if not _log.isEnabledFor(logging.DEBUG) and self.repeated_calls.is_repeated(
            CallKind(level, method, code, name_caller(context))
        ):
            return
        _log_line(level, method, code, context, seconds)


def _trace_call(method: Method, answer: Any) -> Any:
    """Wrap ``answer`` in a span, a child of the caller's span."""
    from tickwheel.telemetry import spans

    async def handler(requests: RequestReader, context: Any) -> Any:
        with _span(method, context) as span:
            requests.trace = spans.current_trace_pairs()
            response = await answer(requests, context)
            if method.name == "Dequeue":
                spans.link_deliveries(span, (delivery.metadata for delivery in response.deliveries))
            return response

    return handler


def _trace_server_stream(method: Method, answer: Any) -> Any:
    """Return an ``answer`` that runs in a span, for a method that streams its responses."""
    from tickwheel.telemetry import spans

    async def handler(requests: RequestReader, context: Any, write: Callable[[Any], Awaitable[None]]) -> None:
        with _span(method, context) as span:

            def write_traced(response: Any) -> Awaitable[None]:
                deliveries = (delivery for item in response.answers for delivery in item.response.deliveries)
                spans.link_deliveries(span, (delivery.metadata for delivery in deliveries))
                return write(response)

            await answer(requests, context, write_traced)

    return handler


@contextmanager
def _span(method: Method, context: Any) -> Iterator[Any]:
    from tickwheel.telemetry import spans

    with spans.serving(method.path.removeprefix("/"), context.invocation_metadata()) as span:
        code = "OK"
        try:
            yield span
        except BaseException as error:
            code = _code(context, error)
            raise
        finally:
            spans.record_status_code(span, code)


def _split_response(method: Method, first: Any, response: Any) -> list[tuple[Any, Any]]:
    """Return pairs: each request that ``response`` answers, and the part of ``response`` that answers this request."""
    if method.client_streaming:
        return [(first, response)]
    return [(first.requests[item.place], item.response) for item in response.answers]


def _code(context: Any, error: BaseException) -> str:
    """Return the name of the gRPC code with which the call ends."""
    if isinstance(error, grpc.aio.AbortError):
        return _NAMES.get(context.code(), "UNKNOWN")
    # The library raises its other errors if the client has cancelled the call, so the call cannot be answered.
    if isinstance(error, asyncio.CancelledError | GeneratorExit | grpc.aio.BaseError):
        left = context.time_remaining()
        return "CANCELLED" if left is None or left > 0 else "DEADLINE_EXCEEDED"
    return "UNKNOWN"


def _log_line(level: int, method: str, code: str, context: Any, seconds: float) -> None:
    token, peer, ms = CALL.get()[0].name, context.peer(), round(1_000 * seconds, 1)
    fields: dict[str, Any] = {
        "event": "call", "method": method, "code": code, "token": token, "peer": peer, "duration_ms": ms
    }  # fmt: skip
    text = f"{method} of {token} at {peer}: {code} after {ms:g} ms"
    details = context.details() if code not in _QUOTING_CODES or _log.isEnabledFor(logging.DEBUG) else b""
    if details:
        fields["reason"] = details.decode() if isinstance(details, bytes) else details
        text += f": {fields['reason']}"
    _log.log(level, "%s", text, extra={"fields": fields})
