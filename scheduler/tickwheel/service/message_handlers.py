"""The RPCs of MessageService, except for those in `lease_handlers`. A handler converts the request from protobuf, runs
a plan on the namespace, and converts the result to protobuf.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Final, TypeVar

from tickwheel import limits
from tickwheel.errors import InvalidArgument, LimitExceeded, TickwheelError, Unavailable
from tickwheel.model import validation
from tickwheel.model.message import EnqueueResult, LeasedMessage
from tickwheel.model.results import Change
from tickwheel.operations import cancel, explain, inspect, redrive, reschedule
from tickwheel.operations.dequeue import Dequeue
from tickwheel.operations.dequeue_options import DequeueOptions
from tickwheel.operations.enqueue import RefusedMessage, enqueue_messages, to_error
from tickwheel.operations.scan import Scan
from tickwheel.operations.several_queues.message_wait import MessageWait
from tickwheel.rpc import message_conversion
from tickwheel.rpc.status import error_to_proto
from tickwheel.runtime.event_loop import append_all
from tickwheel.service.authorization import CALL, creation_limit
from tickwheel.service.call_limits import name_current_caller
from tickwheel.service.dequeue_batch import DequeueBatch, charge_and_convert, to_dequeue
from tickwheel.service.lease_handlers import LeaseHandlers
from tickwheel.service.method_table import cost_of_messages
from tickwheel.service.namespaces import Namespace, Namespaces
from tickwheel.service.request_fields import exclusive_value, request_sessions
from tickwheel.service.request_reader import read_until_drained
from tickwheel.service.resolve_queue import may_read_payloads, on_queue, resolve_queue, resolve_queues
from tickwheel.service.stream_credit import StreamCredit
from tickwheel.service.token_quota import ConcurrencyLimit
from tickwheel.v1 import message_pb2 as messages, message_service_pb2 as calls

T = TypeVar("T")
WriteDeliveries = Callable[[calls.DequeueStreamResponse], Awaitable[None]]
_MAX_REFUSED: Final = 1_000
# Messages of a page that are converted without a pause. This takes 0.5 to 3 ms.
_LISTED_AT_ONCE: Final = 50
# Changes, or errors, that are converted without a pause. This takes about 3 ms.
_CHANGES_AT_ONCE: Final = 250
# The maximum number of messages in one response of a stream. The service holds at most one response for a client that
# does not read.
_MAX_STREAM_BATCH: Final = 100
# A dequeue stream waits at most this long in one dequeue, and then checks that its client still wants messages.
_STREAM_WAIT: Final = timedelta(minutes=1)


class MessageHandlers(LeaseHandlers):
    """Implements MessageService: one method for each RPC, with the name of the RPC in snake case."""

    def __init__(self, namespaces: Namespaces, wait_limit: ConcurrencyLimit) -> None:
        """``wait_limit`` limits the waiting calls of this process."""
        super().__init__(namespaces)
        self._wait_limit = wait_limit
        self._waiting: set[Dequeue | MessageWait | inspect.EndWait] = set()
        self._drained = asyncio.Event()

    def drain(self) -> None:
        """Answer all waiting calls, end all streams, and let no later call wait."""
        self._drained.set()
        for waiting in self._waiting:
            waiting.cancel_wait()

    @on_queue
    async def enqueue(self, request: calls.EnqueueRequest, namespace: Namespace, queue: str) -> calls.EnqueueResponse:
        result = await namespace.enqueue_batcher.enqueue(
            queue, message_conversion.new_message_from_proto(request.message)
        )
        return calls.EnqueueResponse(result=message_conversion.result_to_proto(result))

    @on_queue
    async def enqueue_batch(
        self, request: calls.EnqueueBatchRequest, namespace: Namespace, queue: str
    ) -> calls.EnqueueBatchResponse:
        return calls.EnqueueBatchResponse(
            results=await _enqueue_all(namespace, queue, request.messages, request.queue_uid)
        )

    async def enqueue_stream(self, requests: AsyncIterator[calls.EnqueueStreamRequest]) -> calls.EnqueueStreamResponse:
        response = calls.EnqueueStreamResponse()
        # The names in the first request. The request itself may be large, and the stream may last long.
        first: tuple[str, str] | None = None
        async for request in read_until_drained(requests, self._drained):
            first = first or (request.namespace, request.queue)
            request.namespace, request.queue = request.namespace or first[0], request.queue or first[1]
            namespace, queue = await resolve_queue(self.namespaces, request)
            results = await _enqueue_all(namespace, queue, request.messages)
            created = sum(result.created for result in results)
            namespace.counters.messages["enqueued"].add(namespace.context.namespace, queue, created)
            response.created += created
            for result in results:
                if result.HasField("refusal"):
                    response.refused_count += 1
                    if len(response.refused) < _MAX_REFUSED:
                        response.refused.append(result)
                elif not result.created:
                    response.present += 1
            # The stream may wait long for the next one.
            del request, results
        # If the drain ended the stream, some requests may be unread. A normal response would wrongly report that their
        # messages are enqueued, too.
        self._check_not_drained(
            "the service may have enqueued only some of the messages; enqueue all of them again with the same ids"
        )
        return response

    @on_queue
    async def dequeue(self, request: calls.DequeueRequest, namespace: Namespace, queue: str) -> calls.DequeueResponse:
        wait = None if self._drained.is_set() else message_conversion.duration_from_proto(request, "wait_ms")
        dequeue = to_dequeue(namespace, queue, request, wait)
        if not request.wait_ms:
            # A repeated request (not `first_attempt`) must return the messages that its first call has leased, even if
            # the queue is empty now. So it must not go to the poll coalescer, which answers requests after one check.
            execute = (
                namespace.poll_coalescer.dequeue
                if request.first_attempt or not request.request_id
                else namespace.dequeue
            )
            leased_messages = await execute(dequeue)
        else:
            async with CALL.get()[0].hold_wait_slot(self._wait_limit):
                leased_messages = await self._wait(dequeue, namespace.dequeue(dequeue))
        return await charge_and_convert(leased_messages)

    async def dequeue_batch(
        self, request: calls.DequeueBatchRequest, write: Callable[[calls.DequeueBatchResponse], Awaitable[None]]
    ) -> None:
        await DequeueBatch(self.namespaces, write).answer(request)

    async def await_messages(self, request: calls.AwaitMessagesRequest) -> calls.AwaitMessagesResponse:
        namespace, queues = await resolve_queues(self.namespaces, request)
        wait_ms = validation.duration_ms(
            "wait", message_conversion.duration_from_proto(request, "wait_ms"), 0, limits.WAIT_MS_MAX
        )
        wait = MessageWait(namespace.context, queues, name_current_caller())
        if not wait_ms or self._drained.is_set():
            return calls.AwaitMessagesResponse(queues=await namespace.run(wait.plan(0)))
        async with CALL.get()[0].hold_wait_slot(self._wait_limit):
            return calls.AwaitMessagesResponse(queues=await self._wait(wait, namespace.run(wait.plan(wait_ms / 1000))))

    async def dequeue_stream(self, requests: AsyncIterator[calls.DequeueStreamRequest], write: WriteDeliveries) -> None:
        requests = read_until_drained(requests, self._drained)
        # The first request names the queue and the options.
        if (first := await anext(requests, None)) is not None:
            namespace, queue = await resolve_queue(self.namespaces, first)
            options, credit = _parse_stream_options(first), StreamCredit(first.credit, requests)
            # The request can be large, and the stream may last long.
            del first
            async with credit:
                await self._stream_deliveries(namespace, queue, options, credit, write)
        self._check_not_drained("delivered messages stay leased")

    async def _stream_deliveries(
        self,
        namespace: Namespace,
        queue: str,
        options: DequeueOptions,
        credit: StreamCredit,
        write: WriteDeliveries,
    ) -> None:
        caller, cost = name_current_caller(), 0
        while limit := await credit.wait_for_credit():
            # A stream is slowed down where another call is rejected.
            if not await credit.outlasts(self.namespaces.answers.wait()):
                continue
            if cost and not await credit.outlasts(CALL.get()[0].quota.wait_and_take(cost)):
                continue
            # Each dequeue reads all shards. The first one is charged with the request.
            cost = namespace.context.shards // limits.SHARDS_OF_A_MESSAGE
            options = options._replace(limit=min(limit, _MAX_STREAM_BATCH))
            dequeue = Dequeue(namespace.context, queue, options, caller)
            leased_messages: list[LeasedMessage] = []
            # The caller may have left more answers unread during the wait for messages: the next round then waits.
            with credit.on_client_close(dequeue.cancel_wait), suppress(LimitExceeded):
                leased_messages = await self._wait(dequeue, namespace.dequeue(dequeue))
            written = None
            if leased_messages:
                credit.spend(len(leased_messages))
                cost += cost_of_messages(len(leased_messages))
                deliveries = [message_conversion.delivery_to_proto(message) for message in leased_messages]
                written = write(calls.DequeueStreamResponse(deliveries=deliveries))
                del deliveries
            # The stream may wait long for its client and for credit. It keeps only the bytes of the response meanwhile.
            del dequeue, leased_messages
            if written is not None:
                await written

    @on_queue
    async def cancel(self, request: calls.CancelRequest, namespace: Namespace, queue: str) -> calls.CancelResponse:
        plan = cancel.cancel_messages(
            namespace.context,
            queue,
            request.ids,
            exclusive_value(request),
            request.release,
            await request_sessions(request),
        )
        results = zip(request.ids, await namespace.run(plan), strict=True)
        response = calls.CancelResponse()
        await append_all(response.changes, results, _cancelled_to_proto, _CHANGES_AT_ONCE)
        return response

    @on_queue
    async def reschedule(
        self, request: calls.RescheduleRequest, namespace: Namespace, queue: str
    ) -> calls.RescheduleResponse:
        times = message_conversion.times_from_proto(request)
        plan = reschedule.reschedule(
            namespace.context, queue, request.id, exclusive_value(request), *times, await request_sessions(request)
        )
        return calls.RescheduleResponse(change=message_conversion.change_to_proto(await namespace.run(plan)))

    @on_queue
    async def redrive(self, request: calls.RedriveRequest, namespace: Namespace, queue: str) -> calls.RedriveResponse:
        plan = redrive.redrive(
            namespace.context, queue, request.id, exclusive_value(request), await request_sessions(request)
        )
        return calls.RedriveResponse(change=message_conversion.change_to_proto(await namespace.run(plan)))

    @on_queue
    async def get_message(
        self, request: calls.GetMessageRequest, namespace: Namespace, queue: str
    ) -> calls.GetMessageResponse:
        wait_ms = validation.integer("wait_ms", request.wait_ms, 0, limits.WAIT_MS_MAX)
        if self._drained.is_set():
            wait_ms = 0
        withhold = not may_read_payloads(request, queue)
        end_wait = inspect.EndWait(
            *(namespace.context, queue, request.id, exclusive_value(request), wait_ms),
            reads_payload=not withhold,
            caller=name_current_caller() if wait_ms else "",
        )
        if not wait_ms:
            view = await namespace.run(end_wait.plan())
        else:
            async with CALL.get()[0].hold_wait_slot(self._wait_limit):
                view = await self._wait(end_wait, namespace.run(end_wait.plan()))
        return calls.GetMessageResponse(message=message_conversion.message_to_proto(view, withhold_payload=withhold))

    @on_queue
    async def explain(self, request: calls.ExplainRequest, namespace: Namespace, queue: str) -> calls.ExplainResponse:
        explanation = await namespace.run(
            explain.explain(namespace.context, queue, request.id, exclusive_value(request))
        )
        return message_conversion.explanation_to_proto(explanation)

    @on_queue
    async def list_messages(
        self, request: calls.ListMessagesRequest, namespace: Namespace, queue: str
    ) -> calls.ListMessagesResponse:
        if request.state not in messages.State.values():
            raise InvalidArgument(f"state must be 0 to {max(messages.State.values())}, not {request.state}")
        withhold = not may_read_payloads(request, queue)
        state = message_conversion.state_from_proto(request.state) or None
        scan = Scan(namespace.context, queue, state, request.page_token, reads_payloads=not withhold)
        response = calls.ListMessagesResponse()
        convert = partial(message_conversion.message_to_proto, withhold_payload=withhold)
        try:
            page = await namespace.run(scan.next())
        finally:
            CALL.get()[0].quota.charge(cost_of_messages(scan.records))
        await append_all(response.messages, page, convert, _LISTED_AT_ONCE)
        response.next_page_token = scan.token
        return response

    def _check_not_drained(self, consequence: str) -> None:
        """Raise Unavailable if the drain has begun: the client then opens a new stream at another process."""
        if self._drained.is_set():
            raise Unavailable(f"this process of the service is stopping: open a new stream; {consequence}")

    async def _wait(self, waiting: Dequeue | MessageWait | inspect.EndWait, call: Awaitable[T]) -> T:
        """Run a call that waits. `drain` ends the wait."""
        self._waiting.add(waiting)
        try:
            return await call
        finally:
            self._waiting.discard(waiting)


def _parse_stream_options(first: calls.DequeueStreamRequest) -> DequeueOptions:
    """Return the options of a dequeue stream, with the limit 1: the limit of each dequeue depends on the credit."""
    return DequeueOptions.parse(
        1,
        first.where or None,
        message_conversion.duration_from_proto(first, "lease_ms"),
        _STREAM_WAIT,
        first.worker,
        max_bytes=limits.ANSWER_BYTES,
    )


async def _enqueue_all(
    namespace: Namespace, queue: str, items: Sequence[messages.NewMessage], uid: bytes = b""
) -> list[messages.EnqueueResult]:
    new = [message_conversion.new_message_from_proto(item) for item in items]
    results: Sequence[EnqueueResult | RefusedMessage]
    if len(new) == 1:
        # Some clients send even a single message as a batch.
        results = [await namespace.enqueue_batcher.try_enqueue(queue, new[0], uid)]
    else:
        results = await namespace.run(enqueue_messages(namespace.context, queue, new, creation_limit(), uid))
    return [
        messages.EnqueueResult(id=item.id, refusal=error_to_proto(to_error(queue, item)))
        if isinstance(item, RefusedMessage)
        else message_conversion.result_to_proto(item)
        for item in results
    ]


def _cancelled_to_proto(item: tuple[str, Change | TickwheelError]) -> messages.Change:
    id_, result = item
    if isinstance(result, TickwheelError):
        return messages.Change(id=id_, refusal=error_to_proto(result))
    return message_conversion.change_to_proto(result)
