"""The RPCs of MessageService that workers call for their leased messages."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tickwheel import limits
from tickwheel.errors import LeaseLost, QueueNotFound
from tickwheel.model.message import LeasedMessage
from tickwheel.model.validation import integer, message_id, text
from tickwheel.operations import settle
from tickwheel.operations.answered_calls import register_call
from tickwheel.operations.locate import shard_of_message
from tickwheel.operations.resume_lease import check_token, resume_lease
from tickwheel.plan import Effects, Plan
from tickwheel.rpc import message_conversion
from tickwheel.runtime.event_loop import append_all
from tickwheel.service.namespaces import Namespace, Namespaces
from tickwheel.service.request_fields import exclusive_value, request_sessions
from tickwheel.service.resolve_queue import on_queue, resolve_queue
from tickwheel.v1 import message_pb2 as messages, message_service_pb2 as calls

# Items with an error text that are checked without a pause: a request of 4 MiB with a hundred long texts takes 5 to 13
# ms in all.
_CHECKED_AT_ONCE: Final = 10


class LeaseHandlers:
    """One method for each RPC, with the name of the RPC in snake case."""

    def __init__(self, namespaces: Namespaces) -> None:
        self.namespaces = namespaces

    async def complete(self, request: calls.CompleteRequest) -> calls.CompleteResponse:
        namespace, leased_messages = await self._resolve_leases(request, request.leases)
        results = _unpack_results(request.results, len(leased_messages))
        return calls.CompleteResponse(
            lost=await _lost_indexes(
                namespace, leased_messages, settle.complete(namespace.context, leased_messages, results)
            )
        )

    async def fail(self, request: calls.FailRequest) -> calls.FailResponse:
        items = request.items
        namespace, leased_messages = await self._resolve_leases(request, [item.lease for item in items])
        sessions = await request_sessions(request)
        plans: list[Plan[settle.FailedAttempt]] = []

        def make_plan(pair: tuple[calls.FailRequest.Item, LeasedMessage]) -> Plan[settle.FailedAttempt]:
            item, message = pair
            retry_in = message_conversion.duration_from_proto(item, "retry_in_ms")
            return settle.fail(namespace.context, message, item.error, retry_in, item.final, sessions)

        # All items are checked before the first one fails.
        await append_all(plans, zip(items, leased_messages, strict=True), make_plan, _CHECKED_AT_ONCE)
        if sessions is not None:
            shards = {shard_of_message(namespace.context, message) for message in leased_messages}
            await namespace.run(register_call(namespace.context, request.queue, sessions, shards))
        # None for a lost lease.
        answers: list[settle.FailedAttempt | None] = []
        first_missing: QueueNotFound | None = None
        missing = 0
        effects = Effects()
        for plan in plans:
            try:
                answers.append(await namespace.run(plan, effects))
            except LeaseLost:
                answers.append(None)
            except QueueNotFound as error:
                # The leases of another number of the queue may be good. The traceback of a kept error refers to this
                # frame, and so to the error: such cycles stay in memory until the garbage collector runs.
                answers.append(None)
                missing += 1
                first_missing = first_missing or error.with_traceback(None)
        if first_missing is not None and missing == len(items):
            raise first_missing
        return calls.FailResponse(
            states=[message_conversion.state_to_proto(answer and answer.state) for answer in answers],
            retry_in_ms=[answer.retry_in_ms or 0 if answer else 0 for answer in answers],
            # A lease does not contain the maximum of its message, so this is the maximum of the queue.
            max_attempts=max((answer.max_attempts for answer in answers if answer), default=0),
        )

    async def release(self, request: calls.ReleaseRequest) -> calls.ReleaseResponse:
        namespace, leased_messages = await self._resolve_leases(request, request.leases)
        plan = settle.release(namespace.context, leased_messages, await request_sessions(request))
        return calls.ReleaseResponse(lost=await _lost_indexes(namespace, leased_messages, plan))

    async def extend(self, request: calls.ExtendRequest) -> calls.ExtendResponse:
        namespace, leased_messages = await self._resolve_leases(request, request.leases)
        duration = message_conversion.duration_from_proto(request, "duration_ms")
        plan = settle.extend(namespace.context, leased_messages, duration, await request_sessions(request))
        lost = set(await _lost_indexes(namespace, leased_messages, plan))
        ends = [0 if n in lost else message._lease_until_ms for n, message in enumerate(leased_messages)]
        return calls.ExtendResponse(lease_until_ms=ends)

    @on_queue
    async def get_lease(
        self, request: calls.GetLeaseRequest, namespace: Namespace, queue: str
    ) -> calls.GetLeaseResponse:
        plan = resume_lease(
            namespace.context, queue, request.id, request.token, exclusive_value(request), LeasedMessage
        )
        return calls.GetLeaseResponse(delivery=message_conversion.delivery_to_proto(await namespace.run(plan)))

    async def _resolve_leases(
        self, request: Any, leases: Sequence[messages.Lease]
    ) -> tuple[Namespace, list[LeasedMessage]]:
        namespace, queue = await resolve_queue(self.namespaces, request)
        number = 0
        if not all(lease.queue_number for lease in leases):
            number = (await namespace.run(namespace.context.config(queue))).number
        for lease in leases:
            _check_lease(lease)
            lease.queue_number = lease.queue_number or number
        return namespace, [message_conversion.lease_from_proto(LeasedMessage, queue, lease) for lease in leases]


async def _lost_indexes(namespace: Namespace, leased_messages: Sequence[LeasedMessage], plan: Plan[None]) -> list[int]:
    """Run the plan, and return the indexes of the messages whose lease is lost."""
    try:
        await namespace.run(plan)
    except LeaseLost as error:
        ids = {id(message) for message in error.lost}
        return [n for n, message in enumerate(leased_messages) if id(message) in ids]
    return []


def _unpack_results(results: Mapping[int, str], count: int) -> list[str | None]:
    for index in results:
        integer("an index in results", index, 0, count - 1)
    return [results.get(n) for n in range(count)]


def _check_lease(lease: messages.Lease) -> None:
    message_id(lease.id)
    if lease.HasField("exclusive_value"):
        text("exclusive_value", lease.exclusive_value, limits.PAIR_VALUE_BYTES)
    check_token(lease.token)
    integer("queue_number", lease.queue_number, 0, limits.QUEUES_MAX)
    integer("attempt", lease.attempt, 0, limits.MAX_ATTEMPTS_MAX)
