"""Dequeue requests: the conversion of a single request, and the RPC `DequeueBatch` with many requests of one client."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from tickwheel import limits
from tickwheel.errors import Forbidden, InvalidArgument, TickwheelError
from tickwheel.model.message import LeasedMessage
from tickwheel.model.message_content import filters
from tickwheel.model.validation import Duration
from tickwheel.operations.dequeue import Dequeue
from tickwheel.operations.dequeue_options import DequeueOptions
from tickwheel.rpc import message_conversion
from tickwheel.runtime.event_loop import append_all
from tickwheel.service.authorization import CALL
from tickwheel.service.call_limits import name_current_caller
from tickwheel.service.method_table import cost_of_messages
from tickwheel.service.namespaces import Namespace, Namespaces
from tickwheel.service.request_fields import request_owner
from tickwheel.service.request_reader import QueueName
from tickwheel.service.resolve_queue import resolve_queue
from tickwheel.v1 import message_service_pb2 as calls

_CONSISTENCIES: Final[dict[int, str]] = {
    calls.DequeueRequest.CONSISTENCY_UNSPECIFIED: "heads",
    calls.DequeueRequest.CONSISTENCY_HEADS: "heads",
    calls.DequeueRequest.CONSISTENCY_EXACT: "exact",
}
# Messages that are converted without a pause. This takes about 1 ms.
_CONVERTED_AT_ONCE: Final = 50
Write = Callable[[calls.DequeueBatchResponse], Awaitable[None]]
RequestGroup = list[tuple[int, calls.DequeueRequest]]


def to_dequeue(namespace: Namespace, queue: str, request: calls.DequeueRequest, wait: Duration | None) -> Dequeue:
    """Return the dequeue operation for a request. Raises InvalidArgument if the request is invalid."""
    if request.consistency not in _CONSISTENCIES:
        raise InvalidArgument(f"consistency must be 0, 1 or 2, not {request.consistency}")
    options = DequeueOptions.parse(
        request.limit or 1,
        request.where or None,
        message_conversion.duration_from_proto(request, "lease_ms"),
        wait,
        request.worker,
        request.request_id or None,
        _CONSISTENCIES[request.consistency],
        first_attempt=request.first_attempt,
        request_owner=request_owner(),
        registers=True,
        max_bytes=limits.ANSWER_BYTES,
    )
    # To name the caller costs time.
    return Dequeue(namespace.context, queue, options, name_current_caller() if options.wait_ms else "")


class DequeueBatch:
    """Answers the requests of one `DequeueBatch` call.

    Requests with the same namespace, queue and filter form a group. The requests of a group are served in order;
    groups are served concurrently. The batches of a caller read few groups at a time in total. A group that waits for
    its client to read an answer does not count: the other clients of the caller need not wait for this one.
    """

    def __init__(self, namespaces: Namespaces, write: Write) -> None:
        self._namespaces = namespaces
        self._write = write
        self._caller = ""

    async def answer(self, request: calls.DequeueBatchRequest) -> None:
        """Answer the requests. A request that fails stays unanswered, and the client repeats it as a single call.

        Raises InvalidArgument if the batch is invalid, before any message is leased. Raises Forbidden if the caller
        lacks the permission for one of the queues, after the other requests are answered.
        """
        requests = request.requests
        wanted = sum(max(item.limit, 1) for item in requests)
        if wanted > limits.DEQUEUE_MESSAGES:
            raise InvalidArgument(
                f"requests are for {wanted} messages, and at most {limits.DEQUEUE_MESSAGES} are allowed in one call"
            )
        groups: dict[Any, RequestGroup] = {}
        for index, item in enumerate(requests):
            if item.wait_ms or not (item.first_attempt and item.request_id):
                raise InvalidArgument(f"request {index} must be a first_attempt with a request_id and without a wait")
            try:
                key = QueueName.of(item), frozenset(filters(item.where).items())
            except InvalidArgument:
                # The client repeats the request as a single call, which returns the error.
                continue
            groups.setdefault(key, []).append((index, item))
        if len({item.request_id for item in requests}) < len(requests):
            raise InvalidArgument("two requests have the same request_id")
        self._caller = name_current_caller()
        left = iter(groups.values())
        count = min(len(groups), limits.CALLER_DEQUEUE_GROUPS)
        tasks = [asyncio.create_task(self._answer_groups(left)) for _ in range(count)]
        try:
            forbidden = [error for errors in await asyncio.gather(*tasks) for error in errors]
        finally:
            for task in tasks:
                task.cancel()
        if forbidden:
            raise forbidden[0]

    async def _answer_groups(self, left: Iterator[RequestGroup]) -> list[Forbidden]:
        """Serve groups one after the other until none is left. Return the errors of `_answer_group`."""
        return [error for group in left if (error := await self._answer_group(group)) is not None]

    async def _answer_group(self, group: RequestGroup) -> Forbidden | None:
        """Serve the requests in order until the queue has no more messages. The remaining requests get empty answers.

        Returns the error if the caller may not use the queue, else None.
        """
        try:
            unanswered = await self._serve(group)
        except TickwheelError as error:
            # The client repeats each unanswered request as a single call, which returns the error. Other calls go on
            # between two groups that fail at once.
            await asyncio.sleep(0)
            return error if isinstance(error, Forbidden) else None
        if unanswered:
            await self._write(_to_response((index, _EMPTY_RESPONSE) for index in unanswered))
        return None

    async def _serve(self, group: RequestGroup) -> list[int]:
        """Answer requests until the queue has no more messages. Return the places of the others.

        The client may read its answers late. Meanwhile, this method keeps no messages, and no `Dequeue` of a request
        that still waits: both take many times the bytes of the answer and of the request.
        """
        first = group[0][1]
        # Each dequeue may read all shards.
        size = max(1, self._namespaces.count_shards(first) // limits.SHARDS_OF_A_GROUP)
        turn = partial(self._namespaces.group_turns.turn, self._caller, size)
        async with turn():
            namespace, queue = await resolve_queue(self._namespaces, first)
            dequeue = to_dequeue(namespace, queue, first, None)
            has_more: bool = await namespace.run(dequeue.may_have_messages())
        must_check = False
        for place, (index, request) in enumerate(group):
            if place:
                dequeue = to_dequeue(namespace, queue, request, None)
            if must_check:
                async with turn():
                    has_more = await namespace.run(dequeue.may_have_messages())
            if not has_more:
                return [index for index, _ in group[place:]]
            async with turn():
                messages = await namespace.dequeue(dequeue)
            must_check = len(messages) < dequeue.limit
            written = self._write(_to_response([(index, await charge_and_convert(messages))]))
            del messages, dequeue
            await written
        return []


async def charge_and_convert(messages: Sequence[LeasedMessage]) -> calls.DequeueResponse:
    """Charge the leased messages, and return the response with them. If there are many, other calls go on meanwhile."""
    CALL.get()[0].quota.charge(cost_of_messages(len(messages)))
    response = calls.DequeueResponse()
    await append_all(response.deliveries, messages, message_conversion.delivery_to_proto, _CONVERTED_AT_ONCE)
    return response


def _to_response(answers: Iterable[tuple[int, calls.DequeueResponse]]) -> calls.DequeueBatchResponse:
    answer = calls.DequeueBatchResponse.Answer
    return calls.DequeueBatchResponse(answers=[answer(place=index, response=response) for index, response in answers])


_EMPTY_RESPONSE: Final = calls.DequeueResponse()
