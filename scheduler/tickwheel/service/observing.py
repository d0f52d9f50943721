"""Around each call of the service: its figures, its span, and its line in the log where it was refused or failed."""

import asyncio
import logging
from collections.abc import AsyncIterator
from time import perf_counter
from typing import Any, Final

import grpc

from tickwheel import tracing
from tickwheel.remote.methods import Method
from tickwheel.service.access import CALL
from tickwheel.service.figures import DONE, Figures
from tickwheel.trace_context import TRACEPARENT
from tickwheel.v1.message_service_pb2 import EnqueueRequest

_log = logging.getLogger("tickwheel.service")
_NAMES: Final = {code.value[0]: code.name for code in grpc.StatusCode}
# What is not for the caller to mend.
_FAILED: Final = {"UNKNOWN", "INTERNAL", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED", "DATA_LOSS"}
# Answered; or the client went, or gave up, and nothing was refused.
_QUIET: Final = {"OK", "CANCELLED", "DEADLINE_EXCEEDED"}
# Its text may quote what the caller gave.
_QUOTES: Final = {"INVALID_ARGUMENT"}


class Observing:
    """Of one process."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def around(self, method: Method, answer: Any) -> Any:
        """What grpc is to call for the method in place of ``answer``, which is given what writes its answers where they
        are many.
        """
        return self._streaming(method, answer) if method.answers_many else self._answering(method, answer)

    def _answering(self, method: Method, answer: Any) -> Any:
        name, path, figures = method.name, method.path.removeprefix("/"), self._figures
        done, count = DONE.get(name, ("", None))

        async def observed(request: Any, context: Any) -> Any:
            started, code = perf_counter(), "OK"
            figures.began(name)
            with tracing.serving(path, context.invocation_metadata) as served:
                asked = _Requests(request) if method.asks_many else request
                if served is not None:
                    _adopt(asked, tracing.carried())
                try:
                    response = await answer(asked, context)
                    if count is not None:
                        first = asked.first if method.asks_many else request
                        # A stream without a request is of no queue.
                        if first is not None:
                            figures.done(done, first.namespace, first.queue, count(request, response))
                    return response
                except BaseException as error:
                    code = _code(context, error)
                    raise
                finally:
                    seconds = perf_counter() - started
                    figures.ended(name, code, seconds)
                    if served is not None:
                        served.ends(code)
                    _tell(name, code, context, seconds)

        return observed

    def _streaming(self, method: Method, answer: Any) -> Any:
        name, figures = method.name, self._figures
        done, count = DONE[name]

        async def observed(requests: Any, context: Any) -> None:
            started, code = perf_counter(), "OK"
            figures.began(name)
            asked = _Requests(requests)

            async def write(response: Any) -> None:
                figures.done(done, asked.first.namespace, asked.first.queue, count(None, response))
                await context.write(response)

            try:
                await answer(asked, context, write)
            except BaseException as error:
                code = _code(context, error)
                raise
            finally:
                seconds = perf_counter() - started
                figures.ended(name, code, seconds)
                _tell(name, code, context, seconds)

        return observed

    def around_refusal(self, name: str, answer: Any) -> Any:
        """The same for a call that is refused whatever it asks."""

        async def observed(request: Any, context: Any) -> None:
            started, code = perf_counter(), "OK"
            self._figures.began(name)
            try:
                await answer(request, context)
            except BaseException as error:
                code = _code(context, error)
                raise
            finally:
                seconds = perf_counter() - started
                self._figures.ended(name, code, seconds)
                _tell(name, code, context, seconds)

        return observed


class _Requests:
    """The requests of a stream, of which the first says for which queue they are."""

    def __init__(self, requests: AsyncIterator[Any]) -> None:
        self._requests = aiter(requests)
        self.first: Any = None
        self.trace: tuple[tuple[str, str], ...] = ()

    def __aiter__(self) -> "_Requests":
        return self

    async def __anext__(self) -> Any:
        request = await anext(self._requests)
        if self.first is None:
            self.first = request
        _adopt(request, self.trace)
        return request


def _adopt(asked: Any, trace: tuple[tuple[str, str], ...]) -> None:
    """Messages that carry no trace are of the call's: so those of clients that know nothing of it have one."""
    if isinstance(asked, _Requests):
        asked.trace = trace
    elif trace:
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
