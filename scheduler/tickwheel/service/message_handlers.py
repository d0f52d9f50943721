"""The calls of MessageService, each as a plan on its namespace: what comes in is turned into the product's values, and
what comes of it into the service's.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar

from tickwheel import limits
from tickwheel.errors import InvalidArgument, LeaseLost, TickwheelError, Unavailable
from tickwheel.model.message import EnqueueResult, LeasedMessage
from tickwheel.model.validation import at_most, integer, message_id
from tickwheel.operations import cancel as change
from tickwheel.operations import explain
from tickwheel.operations import inspect as look
from tickwheel.operations import settle as finish
from tickwheel.operations.dequeue import Dequeue
from tickwheel.operations.enqueue import Refused, enqueue_each, refused
from tickwheel.operations.resume_lease import check_token, leased
from tickwheel.operations.scan import Scan
from tickwheel.operations.sessions import NamedSlots
from tickwheel.plan import Plan
from tickwheel.rpc import message_conversion as conversion
from tickwheel.rpc.status import refusal_of
from tickwheel.service.authorization import CALL
from tickwheel.service.dequeue_batch import Batch, asked_for, response_of
from tickwheel.service.namespaces import Namespace, Namespaces
from tickwheel.service.resolve_queue import named
from tickwheel.service.stream_credit import Credit
from tickwheel.service.token_quota import Places
from tickwheel.v1 import message_pb2 as messages
from tickwheel.v1 import message_service_pb2 as calls

T = TypeVar("T")

_LEASES_MOST, _FAILS_MOST = 1_000, 100
# In one response of a stream: what the service holds for a client that does not read.
_STREAM_MOST: Final = 100
# Then a stream sees whether its client is still there.
_STREAM_WAIT: Final = timedelta(minutes=1)


class MessageHandlers:
    """One method for each call of MessageService, named like it."""

    def __init__(self, namespaces: Namespaces, places: Places) -> None:
        """``places`` are those of calls that wait."""
        self._namespaces = namespaces
        self._places = places
        self._waiting: set[Dequeue] = set()
        self._drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def drain(self) -> None:
        """Whoever waits for messages is answered now, streams end, and from now on nobody waits."""
        if not self._drained.done():
            self._drained.set_result(None)
        for asked in self._waiting:
            asked.wait_no_longer()

    async def enqueue(self, request: calls.EnqueueRequest) -> calls.EnqueueResponse:
        namespace, queue = await named(self._namespaces, request)
        result = await namespace.enqueuing.add(queue, conversion.given_message(request.message))
        return calls.EnqueueResponse(result=conversion.result_of(result))

    async def enqueue_batch(self, request: calls.EnqueueBatchRequest) -> calls.EnqueueBatchResponse:
        namespace, queue = await named(self._namespaces, request)
        return calls.EnqueueBatchResponse(results=await _enqueued(namespace, queue, request.messages))

    async def enqueue_stream(self, requests: AsyncIterator[calls.EnqueueStreamRequest]) -> calls.EnqueueStreamResponse:
        told = calls.EnqueueStreamResponse()
        first: calls.EnqueueStreamRequest | None = None
        async for request in self._until_drained(requests):
            first = first or request
            request.namespace, request.queue = request.namespace or first.namespace, request.queue or first.queue
            namespace, queue = await named(self._namespaces, request)
            for result in await _enqueued(namespace, queue, request.messages):
                if result.HasField("refusal"):
                    told.refused_count += 1
                    if len(told.refused) < _LEASES_MOST:
                        told.refused.append(result)
                elif result.created:
                    told.created += 1
                else:
                    told.present += 1
        # Answered as if it were whole, its client would take what was not read for enqueued.
        self._check_not_drained("what was sent is enqueued in part")
        return told

    async def dequeue(self, request: calls.DequeueRequest) -> calls.DequeueResponse:
        namespace, queue = await named(self._namespaces, request)
        wait = None if self._drained.done() else conversion.given_ms(request, "wait_ms")
        asked = asked_for(namespace, queue, request, wait)
        if not request.wait_ms:
            # What has to leave a trace looks for itself.
            takes = namespace.polling.take if request.first_attempt or not request.request_id else namespace.take
            found = await takes(asked)
        else:
            async with CALL.get()[0].waiting_at(self._places):
                found = await self._waited(namespace, asked)
        return response_of(found)

    async def dequeue_batch(
        self, request: calls.DequeueBatchRequest, write: Callable[[calls.DequeueBatchResponse], Awaitable[None]]
    ) -> None:
        await Batch(self._namespaces, write).answer(request)

    async def dequeue_stream(
        self, requests: AsyncIterator[calls.DequeueStreamRequest]
    ) -> AsyncIterator[calls.DequeueStreamResponse]:
        async with Credit(self._until_drained(requests)) as credit:
            async for response in self._delivered(credit):
                yield response
        self._check_not_drained("what was delivered stays so")

    async def _delivered(self, credit: Credit) -> AsyncIterator[calls.DequeueStreamResponse]:
        first = await credit.first()
        if first is None:
            return
        namespace, queue = await named(self._namespaces, first)
        while limit := await credit.some():
            asked = Dequeue(
                namespace.core,
                queue,
                min(limit, _STREAM_MOST),
                first.where or None,
                conversion.given_ms(first, "lease_ms"),
                _STREAM_WAIT,
                first.worker,
                None,
                "heads",
            )
            with credit.while_open(asked.wait_no_longer):
                found = await self._waited(namespace, asked)
            if found:
                credit.spend(len(found))
                yield calls.DequeueStreamResponse(deliveries=map(conversion.delivery_of, found))

    async def complete(self, request: calls.CompleteRequest) -> calls.CompleteResponse:
        namespace, held = await self._held(request, request.leases, _LEASES_MOST)
        results = _results(request.results, len(held))
        return calls.CompleteResponse(lost=await _lost(namespace, held, finish.complete(namespace.core, held, results)))

    async def fail(self, request: calls.FailRequest) -> calls.FailResponse:
        items = request.items
        namespace, held = await self._held(request, [item.lease for item in items], _FAILS_MOST)
        slots = _slots(request)
        states = []
        for item, message in zip(items, held, strict=True):
            retry_in = conversion.given_ms(item, "retry_in_ms")
            try:
                label = await namespace.run(
                    finish.fail(namespace.core, message, item.error, retry_in, item.final, slots)
                )
            except LeaseLost:
                label = None
            states.append(conversion.state(label))
        return calls.FailResponse(states=states)

    async def release(self, request: calls.ReleaseRequest) -> calls.ReleaseResponse:
        namespace, held = await self._held(request, request.leases, _LEASES_MOST)
        plan = finish.release(namespace.core, held, _slots(request))
        return calls.ReleaseResponse(lost=await _lost(namespace, held, plan))

    async def extend(self, request: calls.ExtendRequest) -> calls.ExtendResponse:
        namespace, held = await self._held(request, request.leases, _LEASES_MOST)
        ends = await namespace.run(
            finish.extend_each(namespace.core, held, conversion.given_ms(request, "duration_ms"), _slots(request))
        )
        return calls.ExtendResponse(lease_until_ms=[until or 0 for until in ends])

    async def get_lease(self, request: calls.GetLeaseRequest) -> calls.GetLeaseResponse:
        namespace, queue = await named(self._namespaces, request)
        plan = leased(namespace.core, queue, request.id, request.token, _value(request), LeasedMessage)
        return calls.GetLeaseResponse(delivery=conversion.delivery_of(await namespace.run(plan)))

    async def cancel(self, request: calls.CancelRequest) -> calls.CancelResponse:
        namespace, queue = await named(self._namespaces, request)
        at_most("ids", request.ids, _LEASES_MOST)
        plan = change.cancel_each(namespace.core, queue, request.ids, _value(request), request.release, _slots(request))
        return calls.CancelResponse(
            changes=[
                messages.Change(id=id_, refusal=refusal_of(each))
                if isinstance(each, TickwheelError)
                else conversion.change_of(each)
                for id_, each in zip(request.ids, await namespace.run(plan), strict=True)
            ]
        )

    async def reschedule(self, request: calls.RescheduleRequest) -> calls.RescheduleResponse:
        namespace, queue = await named(self._namespaces, request)
        times = conversion.given_times(request)
        plan = change.reschedule(namespace.core, queue, request.id, _value(request), *times, _slots(request))
        return calls.RescheduleResponse(change=conversion.change_of(await namespace.run(plan)))

    async def redrive(self, request: calls.RedriveRequest) -> calls.RedriveResponse:
        namespace, queue = await named(self._namespaces, request)
        plan = change.redrive(namespace.core, queue, request.id, _value(request), _slots(request))
        return calls.RedriveResponse(change=conversion.change_of(await namespace.run(plan)))

    async def get_message(self, request: calls.GetMessageRequest) -> calls.GetMessageResponse:
        namespace, queue = await named(self._namespaces, request)
        view = await namespace.run(look.get(namespace.core, queue, request.id, _value(request)))
        return calls.GetMessageResponse(message=conversion.message_of(view))

    async def explain(self, request: calls.ExplainRequest) -> calls.ExplainResponse:
        namespace, queue = await named(self._namespaces, request)
        told = await namespace.run(explain.explain(namespace.core, queue, request.id, _value(request)))
        return conversion.explanation_of(told)

    async def list_messages(self, request: calls.ListMessagesRequest) -> calls.ListMessagesResponse:
        namespace, queue = await named(self._namespaces, request)
        if request.state not in messages.State.values():
            raise InvalidArgument(f"state must be 0 to {max(messages.State.values())}, not {request.state}")
        walk = Scan(namespace.core, queue, conversion.label(request.state) or None, request.page_token)
        page = await namespace.run(walk.next())
        return calls.ListMessagesResponse(messages=map(conversion.message_of, page), next_page_token=walk.token)

    async def _until_drained(self, requests: AsyncIterator[T]) -> AsyncIterator[T]:
        """The requests of a stream; they end, too, when the drain begins."""
        while True:
            request = asyncio.ensure_future(anext(requests, None))
            try:
                waits: set[asyncio.Future[Any]] = {request, self._drained}
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                if self._drained.done() or (found := request.result()) is None:
                    return
            finally:
                request.cancel()
            yield found

    def _check_not_drained(self, done: str) -> None:
        """Raises what makes clients of a stream go on at another process."""
        if self._drained.done():
            raise Unavailable(f"this process of the service ends: begin the stream again; {done}")

    async def _waited(self, namespace: Namespace, asked: Dequeue) -> list[LeasedMessage]:
        self._waiting.add(asked)
        try:
            return await namespace.take(asked)
        finally:
            self._waiting.discard(asked)

    async def _held(
        self, request: Any, leases: Sequence[messages.Lease], most: int
    ) -> tuple[Namespace, list[LeasedMessage]]:
        namespace, queue = await named(self._namespaces, request)
        at_most("leases", leases, most)
        number = 0
        if not all(lease.queue_number for lease in leases):
            number = (await namespace.run(namespace.core.config(queue))).number
        for lease in leases:
            _check_lease(lease)
            lease.queue_number = lease.queue_number or number
        return namespace, [conversion.held(LeasedMessage, queue, lease) for lease in leases]


async def _enqueued(
    namespace: Namespace, queue: str, given: Sequence[messages.NewMessage]
) -> list[messages.EnqueueResult]:
    at_most("messages", given, _LEASES_MOST)
    new = [conversion.given_message(each) for each in given]
    found: Sequence[EnqueueResult | Refused]
    if len(new) == 1:
        # As clients send it that know but one way.
        found = [await namespace.enqueuing.offer(queue, new[0])]
    else:
        found = await namespace.run(enqueue_each(namespace.core, queue, new))
    return [
        messages.EnqueueResult(id=each.id, refusal=refusal_of(refused(queue, each)))
        if isinstance(each, Refused)
        else conversion.result_of(each)
        for each in found
    ]


async def _lost(namespace: Namespace, held: Sequence[LeasedMessage], plan: Plan[None]) -> list[int]:
    """Run the plan; the places of those that were not held."""
    try:
        await namespace.run(plan)
    except LeaseLost as error:
        ids = {id(message) for message in error.lost}
        return [n for n, message in enumerate(held) if id(message) in ids]
    return []


def _results(given: Mapping[int, str], count: int) -> list[str | None] | None:
    for place in given:
        integer("a place of results", place, 0, count - 1)
    return [given.get(n) for n in range(count)] if given else None


def _slots(request: Any) -> NamedSlots | None:
    return NamedSlots(request.request_id, request.queue) if request.request_id else None


def _value(request: Any) -> str | None:
    return request.exclusive_value if request.HasField("exclusive_value") else None


def _check_lease(lease: messages.Lease) -> None:
    message_id(lease.id)
    check_token(lease.token)
    integer("queue_number", lease.queue_number, 0, limits.QUEUES_MAX)
    integer("attempt", lease.attempt, 0, limits.MAX_ATTEMPTS_MAX)
