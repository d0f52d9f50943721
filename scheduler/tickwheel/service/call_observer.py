"""Around each call of the service: its figures, its span, and its line in the log where it was refused or failed."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Final

import grpc

from tickwheel import tracing
from tickwheel.rpc.methods import Method
from tickwheel.service.authorization import CALL
from tickwheel.service.counters import MOVES, Figures
from tickwheel.storage.trace_context import TRACEPARENT
from tickwheel.v1.message_service_pb2 import EnqueueRequest

_log = logging.getLogger("tickwheel.service")
# Which of the two a context has depends on the version of grpc.
_NAMES: Final = {known: code.name for code in grpc.StatusCode for known in (code, code.value[0])}
# What is not for the caller to mend.
_FAILED: Final = {"UNKNOWN", "INTERNAL", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED", "DATA_LOSS"}
# Answered; or the client went, or gave up, and nothing was refused.
_QUIET: Final = {"OK", "CANCELLED", "DEADLINE_EXCEEDED"}
# Its text may quote what the caller gave.
_QUOTES: Final = {"INVALID_ARGUMENT"}


class Observing:
    """Of one process. Whether calls have spans is settled when it is made: a provider of traces is set before that."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self._traces = tracing.is_on()

    def around(self, method: Method, answer: Any) -> Any:
        """What grpc is to call for the method in place of ``answer``, which is given what writes its answers where they
        are many.
        """
        if method.asks_many and method.answers_many:
            return self._streaming(method, answer)
        if self._traces:
            answer = (_each_in_a_span if method.answers_many else _in_a_span)(method, answer)
        if method.answers_many:
            return self._answering_each(method, answer)
        return self._answering(method, answer)

    def around_refusal(self, name: str, answer: Any) -> Any:
        """The same for a call that is refused whatever it asks."""

        async def observed(asked: Any, context: Any) -> None:
            await self._observed(name, context, answer(asked, context))

        return observed

    def _answering(self, method: Method, answer: Any) -> Any:
        name, moved, moves = method.name, self._figures.moved, MOVES.get(method.name)

        async def observed(asked: Any, context: Any) -> Any:
            if method.asks_many:
                asked = _Requests(asked)
            response = await self._observed(name, context, answer(asked, context))
            if moves is not None:
                done, count = moves
                first = asked.first if method.asks_many else asked
                # A stream without a request is of no queue.
                if first is not None:
                    moved[done].add(first.namespace, first.queue, count(asked, response))
            return response

        return observed

    def _answering_each(self, method: Method, answer: Any) -> Any:
        moved = self._figures.moved["delivered"]

        async def observed(asked: Any, context: Any) -> None:
            async def write(response: Any) -> None:
                for each in response.answers:
                    of = asked.requests[each.place]
                    moved.add(of.namespace, of.queue, len(each.response.deliveries))
                await context.write(response)

            await self._observed(method.name, context, answer(asked, context, write))

        return observed

    def _streaming(self, method: Method, answer: Any) -> Any:
        name, (done, count) = method.name, MOVES[method.name]
        moved = self._figures.moved[done]

        async def observed(requests: Any, context: Any) -> None:
            asked = _Requests(requests)

            async def write(response: Any) -> None:
                moved.add(asked.first.namespace, asked.first.queue, count(asked, response))
                await context.write(response)

            await self._observed(name, context, answer(asked, context, write))

        return observed

    async def _observed(self, name: str, context: Any, answering: Awaitable[Any]) -> Any:
        started, code, calls = perf_counter(), "OK", self._figures.calls[name]
        calls.in_flight += 1
        try:
            return await answering
        except BaseException as error:
            code = _code(context, error)
            raise
        finally:
            seconds = perf_counter() - started
            calls.ended(code, seconds)
            _tell(name, code, context, seconds)


def _in_a_span(method: Method, answer: Any) -> Any:
    """The same within a span, that of the caller above it. Streams to clients have none: they last for days."""
    from tickwheel.telemetry import spans

    async def traced(asked: Any, context: Any) -> Any:
        with _span(method, context) as span:
            _adopt(asked, spans.pairs())
            response = await answer(asked, context)
            if method.name == "Dequeue":
                spans.delivered(span, (each.metadata for each in response.deliveries))
            return response

    return traced


def _each_in_a_span(method: Method, answer: Any) -> Any:
    """The same for a call that is answered piece by piece."""
    from tickwheel.telemetry import spans

    async def traced(asked: Any, context: Any, write: Any) -> None:
        with _span(method, context) as span:

            async def told(response: Any) -> None:
                found = (each for one in response.answers for each in one.response.deliveries)
                spans.delivered(span, (each.metadata for each in found))
                await write(response)

            await answer(asked, context, told)

    return traced


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
            spans.answered(span, code)


class _Requests:
    """The requests of a stream, of which the first says for which queue they are."""

    def __init__(self, requests: AsyncIterator[Any]) -> None:
        self._requests = aiter(requests)
        self.first: Any = None
        self.trace: dict[str, str] = {}

    def __aiter__(self) -> "_Requests":
        return self

    async def __anext__(self) -> Any:
        request = await anext(self._requests)
        if self.first is None:
            self.first = request
        if self.trace:
            _adopt(request, self.trace)
        return request


def _adopt(asked: Any, trace: dict[str, str]) -> None:
    """Messages that carry no trace are of the call's: so those of clients that know nothing of it have one."""
    if isinstance(asked, _Requests):
        asked.trace = trace
    else:
        new = getattr(asked, "messages", None) or ([asked.message] if isinstance(asked, EnqueueRequest) else ())
        for message in new:
            if TRACEPARENT not in message.metadata:
                message.metadata.update(trace)


def _code(context: Any, error: BaseException) -> str:
    """What the caller hears."""
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        left = context.time_remaining()
        return "CANCELLED" if left is None or left > 0 else "DEADLINE_EXCEEDED"
    return _NAMES.get(context.code(), "UNKNOWN") if isinstance(error, grpc.aio.AbortError) else "UNKNOWN"


def _tell(method: str, code: str, context: Any, seconds: float) -> None:
    level = logging.DEBUG if code in _QUIET else logging.WARNING if code in _FAILED else logging.INFO
    if not _log.isEnabledFor(level):
        return
    token, peer, ms = CALL.get()[0].name, context.peer(), round(1_000 * seconds, 1)
    fields: dict[str, Any] = {
        "event": "call", "method": method, "code": code, "token": token, "peer": peer, "duration_ms": ms
    }  # fmt: skip
    text = f"{method} of {token} at {peer}: {code} after {ms:g} ms"
    details = context.details() if code not in _QUOTES or _log.isEnabledFor(logging.DEBUG) else b""
    if details:
        fields["reason"] = details.decode() if isinstance(details, bytes) else details
        text += f": {fields['reason']}"
    _log.log(level, "%s", text, extra={"fields": fields})
