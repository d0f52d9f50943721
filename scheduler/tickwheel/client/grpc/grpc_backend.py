"""The operations of a client that asks a server of this product: each a plan of calls of the service.

What can be checked without a queue's configuration is checked here, as a direct client does, before anything is sent.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from tickwheel import limits
from tickwheel.client import tracing_backend as traced
from tickwheel.client.grpc.pages import Pages
from tickwheel.client.grpc.request_chunks import BATCH_MESSAGES, batches, of_one_queue
from tickwheel.errors import InvalidArgument
from tickwheel.model import validation as arguments
from tickwheel.model.message import EnqueueResult, LeasedMessage, MessageView, NewMessage
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.cancel import check_ids, check_new_times
from tickwheel.operations.context import Core
from tickwheel.operations.enqueue import Refused, check_refused
from tickwheel.operations.explain import Explanation
from tickwheel.operations.inspect import ForecastMinute, Lateness
from tickwheel.operations.namespace import HISTORIES, OUTBOX_FULL
from tickwheel.operations.results import Change
from tickwheel.operations.resume_lease import check_token
from tickwheel.operations.sessions import parse_request_id
from tickwheel.operations.settings import setting_name, setting_value
from tickwheel.operations.settle import check_final, check_leased, error_text, extended, raise_lost, result_texts
from tickwheel.plan import Ask, Plan
from tickwheel.rpc import message_conversion as conversion
from tickwheel.rpc import queue_conversion
from tickwheel.rpc.status import refusal
from tickwheel.storage.record import State
from tickwheel.v1 import message_pb2 as messages
from tickwheel.v1 import message_service_pb2 as calls
from tickwheel.v1 import queue_service_pb2 as admin

M = TypeVar("M", bound=LeasedMessage)

_CONSISTENCIES = {
    "heads": calls.DequeueRequest.CONSISTENCY_HEADS,
    "exact": calls.DequeueRequest.CONSISTENCY_EXACT,
}


class Remote:
    """See `operations.surface.Operations`. Of the core only the namespace and the slots are used."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def open(
        self,
        shards: int | None,
        history: str | None,
        auto_create: bool | None,
        clock_guard: timedelta | None,
        outbox_limit: int | None,
        outbox_full: str | None,
        existing: bool,
    ) -> Plan[None]:
        asked = admin.OpenNamespaceRequest(
            namespace=self._core.namespace, existing=arguments.boolean("existing", existing)
        )
        if shards is not None:
            asked.shards = arguments.integer("shards", shards, 1, limits.SHARDS_MAX)
        if history is not None:
            asked.history = arguments.one_of("history", history, HISTORIES)
        if auto_create is not None:
            asked.auto_create = arguments.boolean("auto_create", auto_create)
        if clock_guard is not None:
            asked.clock_guard_ms = arguments.duration_ms(
                "clock_guard", clock_guard, limits.CLOCK_GUARD_MS_MIN, limits.CLOCK_GUARD_MS_MAX
            )
        if outbox_limit is not None:
            asked.outbox_limit_bytes = arguments.integer(
                "outbox_limit", outbox_limit, limits.OUTBOX_BYTES_MIN, limits.OUTBOX_BYTES_MAX
            )
        if outbox_full is not None:
            asked.outbox_full = arguments.one_of("outbox_full", outbox_full, OUTBOX_FULL)
        found = yield Ask("OpenNamespace", asked)
        self._core.shards = found.shards

    @traced.sending
    def enqueue_many(self, queue: str, given: Iterable[NewMessage]) -> Plan[list[EnqueueResult]]:
        if not isinstance(given, Iterable):
            raise InvalidArgument(f"enqueue_many takes an iterable of NewMessage, not {arguments.shown(given)}")
        results: list[EnqueueResult | Refused] = []
        for part in batches(given):
            request = calls.EnqueueBatchRequest(namespace=self._core.namespace, queue=queue, messages=part)
            reply = yield Ask("EnqueueBatch", request)
            for found in reply.results:
                if found.HasField("refusal"):
                    results.append(Refused(found.id, conflicts=found.refusal.reason == "ID_CONFLICT"))
                else:
                    results.append(conversion.result(found))
        return check_refused(queue, results)

    @traced.receiving
    def dequeue(
        self,
        queue: str,
        limit: int,
        where: Mapping[str, str] | None,
        lease: timedelta | None,
        wait: timedelta | None,
        worker: str | None,
        request_id: str | None,
        consistency: str,
        kind: type[M],
    ) -> Plan[list[M]]:
        request = calls.DequeueRequest(
            namespace=self._core.namespace,
            queue=queue,
            limit=arguments.integer("limit", limit, 1, limits.DEQUEUE_MESSAGES),
            where=None if where is None else arguments.filters(where),
            wait_ms=0 if wait is None else arguments.duration_ms("wait", wait, 0, limits.WAIT_MS_MAX),
            consistency=_CONSISTENCIES[arguments.one_of("consistency", consistency, _CONSISTENCIES)],
        )
        if lease is not None:
            request.lease_ms = arguments.duration_ms("lease", lease, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
        arguments.text("worker", "" if worker is None else worker, limits.WORKER_BYTES)
        request.worker = worker or ""
        if request_id is not None:
            parse_request_id(request_id, queue)
            request.request_id = request_id
        return self._dequeue(request, kind)

    def _dequeue(self, request: calls.DequeueRequest, kind: type[M]) -> Plan[list[M]]:
        until = time.monotonic() + request.wait_ms / 1000 if request.wait_ms else None
        reply = yield from self._once("Dequeue", request, until)
        return [conversion.delivered(kind, request.queue, each) for each in reply.deliveries]

    def leased(self, queue: str, id_: str, token: bytes, exclusive_value: str | None, kind: type[M]) -> Plan[M]:
        check_token(token)
        found = yield Ask("GetLease", calls.GetLeaseRequest(**self._one(queue, id_, exclusive_value), token=token))
        return conversion.delivered(kind, queue, found.delivery)

    @traced.settling("complete")
    def complete(self, given: Sequence[LeasedMessage], results: Sequence[str | None] | None = None) -> Plan[None]:
        check_leased("complete_many", given)
        lost: list[LeasedMessage] = []
        for queue, part in of_one_queue(given, result_texts(given, results)):
            request = calls.CompleteRequest(
                **self._queue(queue),
                leases=[conversion.lease_of(message) for message, _ in part],
                results={n: result.decode() for n, (_, result) in enumerate(part) if result is not None},
            )
            reply = yield Ask("Complete", request)
            lost += (part[n][0] for n in reply.lost)
        raise_lost(lost)

    @traced.settling("release")
    def release(self, given: Sequence[LeasedMessage]) -> Plan[None]:
        check_leased("release_many", given)
        lost: list[LeasedMessage] = []
        for queue, part in of_one_queue(given):
            leases = [conversion.lease_of(message) for message, _ in part]
            reply = yield from self._once("Release", calls.ReleaseRequest(**self._queue(queue), leases=leases))
            lost += (part[n][0] for n in reply.lost)
        raise_lost(lost)

    @traced.settling("fail")
    def fail(self, message: LeasedMessage, error: str | None, retry_in: timedelta | None, final: bool) -> Plan[str]:
        text = error_text(error).decode()
        check_final(final, retry_in)
        item = calls.FailRequest.Item(lease=conversion.lease_of(message), error=text, final=final)
        if retry_in is not None:
            item.retry_in_ms = arguments.duration_ms("retry_in", retry_in, 0, limits.DELAY_MS_MAX)
        request = calls.FailRequest(namespace=self._core.namespace, queue=message.queue, items=[item])
        reply = yield from self._once("Fail", request)
        raise_lost([message] if reply.states[0] == messages.STATE_UNSPECIFIED else [])
        return conversion.label(reply.states[0])

    def extend(self, given: Sequence[LeasedMessage], duration: timedelta) -> Plan[None]:
        check_leased("extend_many", given)
        ms = arguments.duration_ms("duration", duration, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
        lost: list[LeasedMessage] = []
        for queue, part in of_one_queue(given):
            held = [message for message, _ in part]
            leases = map(conversion.lease_of, held)
            request = calls.ExtendRequest(**self._queue(queue), leases=leases, duration_ms=ms)
            reply = yield from self._once("Extend", request)
            lost += extended(held, reply.lease_until_ms)
        raise_lost(lost)

    def cancel_many(
        self, queue: str, ids: Sequence[str], exclusive_value: str | None, release: bool
    ) -> Plan[list[Change]]:
        check_ids(ids)
        arguments.boolean("release", release)
        for id_ in ids:
            arguments.message_id(id_)
        found: list[messages.Change] = []
        for first in range(0, len(ids), BATCH_MESSAGES):
            request = calls.CancelRequest(
                namespace=self._core.namespace,
                queue=queue,
                ids=ids[first : first + BATCH_MESSAGES],
                exclusive_value=_value(exclusive_value),
                release=release,
            )
            reply = yield from self._once("Cancel", request)
            found += reply.changes
        for each in found:
            if each.HasField("refusal"):
                raise refusal(each.refusal)
        return [conversion.change(each) for each in found]

    def reschedule(
        self,
        queue: str,
        id_: str,
        exclusive_value: str | None,
        delay: timedelta | None,
        due: datetime | None,
        deadline: datetime | timedelta | None,
    ) -> Plan[Change]:
        check_new_times(delay, due, deadline)
        request = calls.RescheduleRequest(**self._one(queue, id_, exclusive_value))
        conversion.set_times(request, delay, due, deadline)
        reply = yield from self._once("Reschedule", request)
        return conversion.change(reply.change)

    def redrive(self, queue: str, id_: str, exclusive_value: str | None) -> Plan[Change]:
        reply = yield from self._once("Redrive", calls.RedriveRequest(**self._one(queue, id_, exclusive_value)))
        return conversion.change(reply.change)

    def get(self, queue: str, id_: str, exclusive_value: str | None) -> Plan[MessageView]:
        found = yield Ask("GetMessage", calls.GetMessageRequest(**self._one(queue, id_, exclusive_value)))
        return conversion.view(found.message)

    def explain(self, queue: str, id_: str, exclusive_value: str | None) -> Plan[Explanation]:
        told = yield Ask("Explain", calls.ExplainRequest(**self._one(queue, id_, exclusive_value)))
        return conversion.explanation(told)

    def pages(self, queue: str, state: str | None) -> Pages:
        return Pages(self._core.namespace, queue, state)

    def counts(self, queue: str) -> Plan[dict[str, int]]:
        found = yield Ask("GetCounts", admin.GetCountsRequest(**self._queue(queue)))
        return {state.label: found.counts[state.label] for state in State}

    def lateness(self, queue: str) -> Plan[Lateness]:
        found = yield Ask("GetCounts", admin.GetCountsRequest(**self._queue(queue)))
        return queue_conversion.lateness(found)

    def depth(self, queue: str, where: Mapping[str, str] | None) -> Plan[int]:
        pairs = {} if where is None else arguments.filters(where)
        found = yield Ask("GetDepth", admin.GetDepthRequest(**self._queue(queue), where=pairs))
        return int(found.pending)

    def forecast(self, queue: str, minutes: int) -> Plan[list[ForecastMinute]]:
        minutes = arguments.integer("minutes", minutes, 1, limits.FORECAST_MINUTES_MAX)
        found = yield Ask("GetForecast", admin.GetForecastRequest(**self._queue(queue), minutes=minutes))
        return queue_conversion.forecast(found)

    def create(self, queue: str, given: Mapping[str, Any], *, update: bool) -> Plan[QueueConfig]:
        arguments.boolean("update", update)
        settings = queue_conversion.settings(given)
        request = admin.CreateQueueRequest(**self._queue(queue), settings=settings, update=update)
        found = yield Ask("CreateQueue", request)
        return queue_conversion.config(found.queue)

    def block(self, queue: str, blocked: bool, *, enqueue: bool, dequeue: bool) -> Plan[QueueConfig]:
        request = admin.BlockQueueRequest(**self._queue(queue))
        if arguments.boolean("enqueue", enqueue):
            request.enqueue_blocked = blocked
        if arguments.boolean("dequeue", dequeue):
            request.dequeue_blocked = blocked
        found = yield Ask("BlockQueue", request)
        return queue_conversion.config(found.queue)

    def config(self, queue: str) -> Plan[QueueConfig]:
        found = yield Ask("GetQueue", admin.GetQueueRequest(**self._queue(queue)))
        return queue_conversion.config(found.queue)

    def queues(self) -> Plan[dict[str, QueueConfig]]:
        found = yield Ask("ListQueues", admin.ListQueuesRequest(namespace=self._core.namespace))
        return {each.name: queue_conversion.config(each) for each in found.queues}

    def settings(self) -> Plan[dict[str, str]]:
        found = yield Ask("ListSettings", admin.ListSettingsRequest(namespace=self._core.namespace))
        return dict(sorted(found.settings.items()))

    def setting(self, name: str) -> Plan[str | None]:
        request = admin.GetSettingRequest(namespace=self._core.namespace, name=setting_name(name))
        found = yield Ask("GetSetting", request)
        value: str | None = conversion.given(found, "value")
        return value

    def set_setting(self, name: str, value: str | None) -> Plan[None]:
        request = admin.SetSettingRequest(namespace=self._core.namespace, name=setting_name(name))
        for raw in setting_value(value):
            request.value = raw.decode()
        yield Ask("SetSetting", request)

    def _queue(self, queue: str) -> dict[str, Any]:
        return {"namespace": self._core.namespace, "queue": queue}

    def _one(self, queue: str, id_: object, exclusive_value: object) -> dict[str, Any]:
        arguments.message_id(id_)
        return {**self._queue(queue), "id": id_, "exclusive_value": _value(exclusive_value)}

    def _once(self, method: str, request: Any, until: float | None = None) -> Plan[Any]:
        """A call that is done once however often it is sent: under the next sequence of a slot, if it names none."""
        if request.request_id:
            return (yield Ask(method, request, until))
        slot = self._core.slots.take()
        try:
            all_answered = slot.next_of(request.queue)
            if method == "Dequeue":
                request.first_attempt = all_answered
            request.request_id = f"{slot.name}:{slot.sequence}"
            answer = yield Ask(method, request, until)
            slot.answered_of(request.queue)
            return answer
        finally:
            self._core.slots.give(slot)


def _value(exclusive_value: object) -> str | None:
    if exclusive_value is None:
        return None
    return arguments.text("exclusive_value", exclusive_value, limits.PAIR_VALUE_BYTES).decode()
