"""The operations of a client of the gRPC service: each is a plan of RPCs. Those on queues and namespaces are in
`grpc_queue_backend.py`.

The backend checks arguments before it sends a request, as `RedisBackend` does. Only the checks that need the queue's
configuration are left to the service.
"""

import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from tickwheel import limits
from tickwheel.client.grpc.grpc_message_wait import AwaitSupport, GrpcMessageWait
from tickwheel.client.grpc.grpc_queue_backend import GrpcQueueBackend
from tickwheel.client.grpc.message_pages import GrpcMessagePager
from tickwheel.client.grpc.request_chunks import BATCH_MESSAGES, chunk_leases, chunk_new_messages
from tickwheel.errors import InvalidArgument, QueueNotFound
from tickwheel.model import validation
from tickwheel.model.message import EnqueueResult, LeasedMessage, MessageView, NewMessage
from tickwheel.model.results import Change, Explanation
from tickwheel.model.validation import Duration
from tickwheel.operations import inspect
from tickwheel.operations.cancel import check_ids
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.dequeue_options import DequeueOptions
from tickwheel.operations.enqueue import RefusedMessage, check_refused
from tickwheel.operations.reschedule import check_new_times
from tickwheel.operations.results import call_each_queue, raise_lease_lost
from tickwheel.operations.resume_lease import check_token
from tickwheel.operations.settle import (
    FailedAttempt,
    apply_lease_ends,
    check_final,
    check_leased,
    error_text,
    result_texts,
)
from tickwheel.plan import Pause, Plan, RpcCall
from tickwheel.rpc import message_conversion
from tickwheel.rpc.status import error_from_proto
from tickwheel.runtime.chunks import iter_chunks
from tickwheel.v1 import message_pb2 as messages, message_service_pb2 as calls

if TYPE_CHECKING:
    from tickwheel.client.undriven_notice import UndrivenNotice

L = TypeVar("L", bound=LeasedMessage)
M = TypeVar("M", bound=LeasedMessage)


class GrpcBackend(GrpcQueueBackend):
    """See `Backend`. The operations on queues and namespaces are those of `GrpcQueueBackend`."""

    def __init__(self, context: NamespaceContext, notice: "UndrivenNotice | None" = None) -> None:
        """``notice`` observes the enqueued messages."""
        super().__init__(context)
        self._notice = notice
        self._await_support = AwaitSupport()

    def enqueue_many(self, queue: str, new_messages: Iterable[NewMessage]) -> Plan[list[EnqueueResult]]:
        if not isinstance(new_messages, Iterable):
            raise InvalidArgument(
                f"enqueue_many takes an iterable of NewMessage, not {validation.preview(new_messages)}"
            )
        results: list[EnqueueResult | RefusedMessage] = []
        uid = self._expected_queues.uid(queue)
        for chunk in chunk_new_messages(new_messages):
            request = calls.EnqueueBatchRequest(
                namespace=self._context.namespace, queue=queue, messages=chunk, queue_uid=uid
            )
            try:
                reply = yield RpcCall("EnqueueBatch", request)
            except QueueNotFound:
                self._expected_queues.on_not_found(queue, uid)
                raise
            for result in reply.results:
                if result.HasField("refusal"):
                    results.append(RefusedMessage(result.id, conflicts=result.refusal.reason == "ID_CONFLICT"))
                else:
                    results.append(message_conversion.result_from_proto(result))
        enqueued = check_refused(queue, results)
        if self._notice is not None:
            self._notice.on_enqueued(enqueued, self)
        return enqueued

    def dequeue(self, queue: str, options: DequeueOptions, kind: type[M]) -> Plan[list[M]]:
        request = calls.DequeueRequest(
            namespace=self._context.namespace,
            queue=queue,
            limit=options.limit,
            where=options.filters,
            wait_ms=options.wait_ms,
            worker=options.worker.decode(),
            consistency=calls.DequeueRequest.CONSISTENCY_EXACT
            if options.exact
            else calls.DequeueRequest.CONSISTENCY_HEADS,
        )
        if options.lease_ms:
            request.lease_ms = options.lease_ms
        if options.request is not None:
            request.request_id = options.request.text
        return self._dequeue(request, kind)

    def message_wait(self, queues: Sequence[str]) -> GrpcMessageWait:
        return GrpcMessageWait(self._context.namespace, queues, self._await_support)

    def _dequeue(self, request: calls.DequeueRequest, kind: type[M]) -> Plan[list[M]]:
        sent = time.monotonic()
        until = sent + request.wait_ms / 1000 if request.wait_ms else None
        reply = yield from self._call_once("Dequeue", request, until)
        deliveries = reply.deliveries
        messages = [message_conversion.delivery_from_proto(kind, request.queue, delivery) for delivery in deliveries]
        for message in messages:
            message._hold_since(sent)
        return messages

    def resume_lease(self, queue: str, id_: str, token: bytes, exclusive_value: str | None, kind: type[M]) -> Plan[M]:
        check_token(token)
        reply = yield RpcCall(
            "GetLease", calls.GetLeaseRequest(**self._message_fields(queue, id_, exclusive_value), token=token)
        )
        return message_conversion.delivery_from_proto(kind, queue, reply.delivery)

    def complete(
        self, leased_messages: Sequence[LeasedMessage], results: Sequence[str | None] | None = None
    ) -> Plan[None]:
        check_leased("complete_many", leased_messages)

        def complete_chunk(queue: str, leased: Sequence[L], texts: Sequence[bytes | None]) -> Plan[list[L]]:
            request = calls.CompleteRequest(
                **self._queue_fields(queue),
                leases=map(message_conversion.lease_to_proto, leased),
                results={n: text.decode() for n, text in enumerate(texts) if text is not None},
            )
            reply = yield RpcCall("Complete", request)
            return [leased[n] for n in reply.lost]

        chunks = chunk_leases(leased_messages, result_texts(leased_messages, results))
        yield from call_each_queue((leased, complete_chunk(queue, leased, texts)) for queue, leased, texts in chunks)

    def release(self, leased_messages: Sequence[LeasedMessage]) -> Plan[None]:
        check_leased("release_many", leased_messages)

        def release_chunk(queue: str, leased: Sequence[L]) -> Plan[list[L]]:
            leases = map(message_conversion.lease_to_proto, leased)
            request = calls.ReleaseRequest(**self._queue_fields(queue), leases=leases)
            reply = yield from self._call_once("Release", request)
            return [leased[n] for n in reply.lost]

        chunks = chunk_leases(leased_messages)
        yield from call_each_queue((leased, release_chunk(queue, leased)) for queue, leased, _ in chunks)

    def fail(
        self, message: LeasedMessage, error: str | None, retry_in: Duration | None, final: bool
    ) -> Plan[FailedAttempt]:
        text = error_text(error).decode()
        check_final(final, retry_in)
        item = calls.FailRequest.Item(lease=message_conversion.lease_to_proto(message), error=text, final=final)
        if retry_in is not None:
            item.retry_in_ms = validation.duration_ms("retry_in", retry_in, 0, limits.DELAY_MS_MAX)
        request = calls.FailRequest(namespace=self._context.namespace, queue=message.queue, items=[item])
        reply = yield from self._call_once("Fail", request)
        raise_lease_lost([message] if reply.states[0] == messages.STATE_UNSPECIFIED else [])
        known_ms = item.retry_in_ms if item.HasField("retry_in_ms") else None
        return FailedAttempt(
            message_conversion.state_from_proto(reply.states[0]),
            # A service of an earlier version does not send the back-off.
            reply.retry_in_ms[0] if reply.retry_in_ms else known_ms,
            message._max_attempts or reply.max_attempts,
        )

    def extend(self, leased_messages: Sequence[LeasedMessage], duration: Duration) -> Plan[None]:
        check_leased("extend_many", leased_messages)
        ms = validation.duration_ms("duration", duration, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)

        def extend_chunk(queue: str, leased: Sequence[L]) -> Plan[list[L]]:
            leases = map(message_conversion.lease_to_proto, leased)
            request = calls.ExtendRequest(**self._queue_fields(queue), leases=leases, duration_ms=ms)
            held_until = time.monotonic() + ms / 1_000
            reply = yield from self._call_once("Extend", request)
            return apply_lease_ends(leased, reply.lease_until_ms, held_until)

        chunks = chunk_leases(leased_messages)
        yield from call_each_queue((leased, extend_chunk(queue, leased)) for queue, leased, _ in chunks)

    def cancel_many(
        self, queue: str, ids: Sequence[str], exclusive_value: str | None, release: bool
    ) -> Plan[list[Change]]:
        check_ids(ids)
        validation.boolean("release", release)
        for id_ in ids:
            validation.message_id(id_)
        changes: list[messages.Change] = []
        for chunk in iter_chunks(list(ids), BATCH_MESSAGES):
            request = calls.CancelRequest(
                namespace=self._context.namespace,
                queue=queue,
                ids=chunk,
                exclusive_value=_encode_exclusive_value(exclusive_value),
                release=release,
            )
            reply = yield from self._call_once("Cancel", request)
            changes += reply.changes
        for change in changes:
            if change.HasField("refusal"):
                raise error_from_proto(change.refusal)
        return [message_conversion.change_from_proto(change) for change in changes]

    def reschedule(
        self,
        queue: str,
        id_: str,
        exclusive_value: str | None,
        delay: Duration | None,
        due: datetime | None,
        deadline: datetime | timedelta | None,
    ) -> Plan[Change]:
        check_new_times(delay, due, deadline)
        request = calls.RescheduleRequest(**self._message_fields(queue, id_, exclusive_value))
        message_conversion.set_times(request, delay, due, deadline)
        reply = yield from self._call_once("Reschedule", request)
        return message_conversion.change_from_proto(reply.change)

    def redrive(self, queue: str, id_: str, exclusive_value: str | None) -> Plan[Change]:
        reply = yield from self._call_once(
            "Redrive", calls.RedriveRequest(**self._message_fields(queue, id_, exclusive_value))
        )
        return message_conversion.change_from_proto(reply.change)

    def get(self, queue: str, id_: str, exclusive_value: str | None, wait_ms: int = 0) -> Plan[MessageView]:
        request = calls.GetMessageRequest(**self._message_fields(queue, id_, exclusive_value), wait_ms=wait_ms)
        until = time.monotonic() + wait_ms / 1000 if wait_ms else None
        while True:
            reply = yield RpcCall("GetMessage", request, until)
            view = message_conversion.message_from_proto(reply.message)
            if until is None or view.state in inspect.ENDED or time.monotonic() >= until:
                return view
            # The service is stopping, or has an earlier version, which does not wait.
            yield Pause(0.5)

    def explain(self, queue: str, id_: str, exclusive_value: str | None) -> Plan[Explanation]:
        reply = yield RpcCall("Explain", calls.ExplainRequest(**self._message_fields(queue, id_, exclusive_value)))
        return message_conversion.explanation_from_proto(reply)

    def pages(self, queue: str, state: str | None) -> GrpcMessagePager:
        return GrpcMessagePager(self._context.namespace, queue, state)

    def _message_fields(self, queue: str, id_: object, exclusive_value: object) -> dict[str, Any]:
        validation.message_id(id_)
        return {**self._queue_fields(queue), "id": id_, "exclusive_value": _encode_exclusive_value(exclusive_value)}


def _encode_exclusive_value(exclusive_value: object) -> str | None:
    if exclusive_value is None:
        return None
    return validation.text("exclusive_value", exclusive_value, limits.PAIR_VALUE_BYTES).decode()
