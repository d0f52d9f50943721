"""Dequeue calls as the service is asked for them: one, or many of one client together."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any, Final

from tickwheel import limits
from tickwheel.errors import Forbidden, InvalidArgument, TickwheelError
from tickwheel.model.message import LeasedMessage
from tickwheel.model.validation import at_most
from tickwheel.operations.dequeue import Dequeue
from tickwheel.rpc import message_conversion as conversion
from tickwheel.service.namespaces import Namespace, Namespaces
from tickwheel.service.resolve_queue import named
from tickwheel.v1 import message_service_pb2 as calls

_CONSISTENCIES: Final[dict[int, str]] = {
    calls.DequeueRequest.CONSISTENCY_UNSPECIFIED: "heads",
    calls.DequeueRequest.CONSISTENCY_HEADS: "heads",
    calls.DequeueRequest.CONSISTENCY_EXACT: "exact",
}
Write = Callable[[calls.DequeueBatchResponse], Awaitable[None]]
Line = list[tuple[int, calls.DequeueRequest]]


def asked_for(namespace: Namespace, queue: str, request: calls.DequeueRequest, wait: timedelta | None) -> Dequeue:
    """The dequeue that a request asks for. Raises InvalidArgument."""
    if request.consistency not in _CONSISTENCIES:
        raise InvalidArgument(f"consistency must be 0, 1 or 2, not {request.consistency}")
    return Dequeue(
        namespace.core,
        queue,
        request.limit or 1,
        request.where or None,
        conversion.given_ms(request, "lease_ms"),
        wait,
        request.worker,
        request.request_id or None,
        _CONSISTENCIES[request.consistency],
        first_attempt=request.first_attempt,
    )


class Batch:
    """Many requests of one call. Those that ask for the same stand in a line; no line waits for another."""

    def __init__(self, namespaces: Namespaces, write: Write) -> None:
        self._namespaces = namespaces
        self._write = write
        # The library takes one answer at a time.
        self._writing = asyncio.Lock()

    async def answer(self, request: calls.DequeueBatchRequest) -> None:
        """Answer each that can be. Raises InvalidArgument before anything is leased, and Forbidden, where one is for
        what its caller may not do, once all others are answered.
        """
        given = request.requests
        at_most("requests", given, limits.DEQUEUE_REQUESTS)
        wanted = sum(max(each.limit, 1) for each in given)
        if wanted > limits.DEQUEUE_MESSAGES:
            raise InvalidArgument(
                f"requests are for {wanted} messages, and at most {limits.DEQUEUE_MESSAGES} are allowed in one call"
            )
        lines: dict[Any, Line] = {}
        for place, each in enumerate(given):
            if each.wait_ms or not (each.first_attempt and each.request_id):
                raise InvalidArgument(f"request {place} must be a first_attempt with a request_id, and may not wait")
            lines.setdefault((each.namespace, each.queue, frozenset(each.where.items())), []).append((place, each))
        if len({each.request_id for each in given}) < len(given):
            raise InvalidArgument("two requests have the same request_id")
        answering = [asyncio.create_task(self._answer_line(line)) for line in lines.values()]
        try:
            forbidden = list(filter(None, await asyncio.gather(*answering)))
        finally:
            for line in answering:
                line.cancel()
        if forbidden:
            raise forbidden[0]

    async def _answer_line(self, line: Line) -> Forbidden | None:
        """One after the other, until there is nothing: that is so for all the others, too. Why none may have any."""
        try:
            namespace, queue = await named(self._namespaces, line[0][1])
            waiting = [(place, asked_for(namespace, queue, request, None)) for place, request in line]
            is_more: bool = await namespace.run(waiting[0][1].look())
            while waiting and is_more:
                place, one = waiting.pop(0)
                found = await namespace.take(one)
                await self._say([calls.DequeueBatchResponse.Answer(place=place, response=response_of(found))])
                if waiting and len(found) < one.limit:
                    is_more = await namespace.run(waiting[0][1].look())
        except TickwheelError as error:
            # Who has no answer asks by itself, and is told.
            return error if isinstance(error, Forbidden) else None
        await self._say([calls.DequeueBatchResponse.Answer(place=place, response=_NOTHING) for place, _ in waiting])
        return None

    async def _say(self, answers: Iterable[calls.DequeueBatchResponse.Answer]) -> None:
        response = calls.DequeueBatchResponse(answers=answers)
        if response.answers:
            async with self._writing:
                await self._write(response)


def response_of(found: Iterable[LeasedMessage]) -> calls.DequeueResponse:
    """The answer with what was leased."""
    return calls.DequeueResponse(deliveries=map(conversion.delivery_of, found))


_NOTHING: Final = calls.DequeueResponse()
