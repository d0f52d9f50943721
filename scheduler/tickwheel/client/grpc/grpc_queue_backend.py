"""The operations of a client of the gRPC service on queues and namespaces: each is a plan of RPCs of QueueService.

The operations on messages are in `grpc_backend.py`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tickwheel import limits
from tickwheel.client.expected_queues import ExpectedQueues
from tickwheel.client.grpc.call_retry import UnknownMethod
from tickwheel.client.grpc.grpc_remover import GrpcRemover
from tickwheel.errors import Forbidden, QueueConfigConflict
from tickwheel.model import message_content, validation
from tickwheel.model.queue_config import QueueConfig
from tickwheel.model.results import ForecastMinute, Lateness
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.namespace_options import NamespaceOptions
from tickwheel.operations.removal.purge import check_states
from tickwheel.operations.settings import setting_name, setting_value
from tickwheel.plan import Plan, RpcCall
from tickwheel.rpc import message_conversion, queue_conversion
from tickwheel.storage.record import State
from tickwheel.v1 import queue_service_pb2 as admin


class GrpcDriverWatch:
    """See `backend.DriverWatch`. The service checks, so only a thorough check is a call."""

    def __init__(self, check: Callable[[], Plan[str]]) -> None:
        self._check = check

    def check(self, *, is_thorough: bool = False) -> Plan[str]:
        return (yield from self._check()) if is_thorough else ""


class GrpcQueueBackend:
    """See `Backend`. Uses only the namespace, the shards and the sessions of the context."""

    def __init__(self, context: NamespaceContext) -> None:
        self._context = context
        # Whether the service may offer `CheckDrivers`. An older service does not.
        self._may_check_drivers = True
        self._expected_queues = ExpectedQueues()

    def open(self, options: NamespaceOptions) -> Plan[None]:
        request = admin.OpenNamespaceRequest(
            namespace=self._context.namespace,
            shards=options.shards,
            history=options.history,
            auto_create=options.auto_create,  # type: ignore[arg-type]  # None leaves the field unset
            clock_guard_ms=options.clock_guard_ms,
            outbox_limit_bytes=options.outbox_limit,
            outbox_full=options.outbox_full,
            existing=options.existing,
        )
        reply = yield RpcCall("OpenNamespace", request)
        self._context.shards = reply.shards

    def purge(self, queue: str, states: Iterable[str] | None) -> GrpcRemover:
        numbers = [] if states is None else map(message_conversion.state_to_proto, check_states(states))
        request = admin.PurgeQueueRequest(**self._queue_fields(queue), states=numbers)
        return GrpcRemover("PurgeQueue", request, self._call_once)

    def delete_queue(self, queue: str, purge: bool) -> GrpcRemover:
        validation.boolean("purge", purge)
        self._expected_queues.on_deleted(queue)
        return GrpcRemover(
            "DeleteQueue", admin.DeleteQueueRequest(**self._queue_fields(queue), purge=purge), self._call_once
        )

    def delete_namespace(self) -> GrpcRemover:
        return GrpcRemover("DeleteNamespace", admin.DeleteNamespaceRequest(namespace=self._context.namespace))

    def counts(self, queue: str) -> Plan[dict[str, int]]:
        reply = yield RpcCall("GetCounts", admin.GetCountsRequest(**self._queue_fields(queue)))
        return {state.label: reply.counts[state.label] for state in State}

    def lateness(self, queue: str) -> Plan[Lateness]:
        reply = yield RpcCall("GetCounts", admin.GetCountsRequest(**self._queue_fields(queue)))
        return queue_conversion.lateness_from_proto(reply)

    def depth(self, queue: str, where: Mapping[str, str] | None) -> Plan[int]:
        pairs = {} if where is None else message_content.filters(where)
        reply = yield RpcCall("GetDepth", admin.GetDepthRequest(**self._queue_fields(queue), where=pairs))
        return int(reply.pending)

    def forecast(self, queue: str, minutes: int) -> Plan[list[ForecastMinute]]:
        minutes = validation.integer("minutes", minutes, 1, limits.FORECAST_MINUTES_MAX)
        reply = yield RpcCall("GetForecast", admin.GetForecastRequest(**self._queue_fields(queue), minutes=minutes))
        return queue_conversion.forecast_from_proto(reply)

    def create(self, queue: str, options: Mapping[str, Any], *, update: bool) -> Plan[QueueConfig]:
        validation.boolean("update", update)
        settings = queue_conversion.partial_settings_to_proto(options)
        request = admin.CreateQueueRequest(**self._queue_fields(queue), settings=settings, update=update)
        try:
            reply = yield RpcCall("CreateQueue", request)
        except (QueueConfigConflict, Forbidden):
            # The program knows now that there is another queue, or cannot know it.
            self._expected_queues.on_created(queue, b"")
            raise
        # An earlier service sends no uid.
        self._expected_queues.on_created(queue, reply.queue.uid)
        return queue_conversion.queue_from_proto(reply.queue)

    def block(self, queue: str, blocked: bool, *, enqueue: bool, dequeue: bool) -> Plan[QueueConfig]:
        request = admin.BlockQueueRequest(**self._queue_fields(queue))
        if validation.boolean("enqueue", enqueue):
            request.enqueue_blocked = blocked
        if validation.boolean("dequeue", dequeue):
            request.dequeue_blocked = blocked
        reply = yield RpcCall("BlockQueue", request)
        return queue_conversion.queue_from_proto(reply.queue)

    def config(self, queue: str) -> Plan[QueueConfig]:
        reply = yield RpcCall("GetQueue", admin.GetQueueRequest(**self._queue_fields(queue)))
        self._expected_queues.on_read(queue, reply.queue.uid)
        return queue_conversion.queue_from_proto(reply.queue)

    def queues(self) -> Plan[dict[str, QueueConfig]]:
        reply = yield RpcCall("ListQueues", admin.ListQueuesRequest(namespace=self._context.namespace))
        return {queue.name: queue_conversion.queue_from_proto(queue) for queue in reply.queues}

    def settings(self) -> Plan[dict[str, str]]:
        reply = yield RpcCall("ListSettings", admin.ListSettingsRequest(namespace=self._context.namespace))
        return dict(sorted(reply.settings.items()))

    def setting(self, name: str) -> Plan[str | None]:
        request = admin.GetSettingRequest(namespace=self._context.namespace, name=setting_name(name))
        reply = yield RpcCall("GetSetting", request)
        value: str | None = message_conversion.optional_field(reply, "value")
        return value

    def set_setting(self, name: str, value: str | None) -> Plan[None]:
        request = admin.SetSettingRequest(namespace=self._context.namespace, name=setting_name(name))
        for raw in setting_value(value):
            request.value = raw.decode()
        yield RpcCall("SetSetting", request)

    def expect_queue(self, queue: str) -> None:
        self._expected_queues.add(queue)

    def is_expected(self, queue: str) -> bool:
        return self._expected_queues.has(queue)

    def check_drivers(self, *, only_once: bool = False) -> Plan[str]:
        if not self._may_check_drivers:
            return ""
        try:
            reply = yield RpcCall("CheckDrivers", admin.CheckDriversRequest(namespace=self._context.namespace))
        except UnknownMethod:
            self._may_check_drivers = False
            return ""
        return str(reply.warning)

    def check_unclaimed(self) -> Plan[str]:
        return self.check_drivers()

    def driver_watch(self, unclaimed_ms: float = 0.0) -> GrpcDriverWatch:
        return GrpcDriverWatch(self.check_drivers)

    def _queue_fields(self, queue: str) -> dict[str, Any]:
        return {"namespace": self._context.namespace, "queue": queue}

    def _call_once(self, method: str, request: Any, until: float | None = None) -> Plan[Any]:
        """Call a method so that it takes effect once, even if the request is sent several times.

        A request without a request id receives a new one: the name and the next number of a client session.
        """
        if request.request_id:
            return (yield RpcCall(method, request, until))
        with self._context.sessions.borrow() as session:
            all_answered = session.begin_rpc(request.queue)
            if method == "Dequeue":
                request.first_attempt = all_answered
            request.request_id = f"{session.name}:{session.sequence}"
            answer = yield RpcCall(method, request, until)
            session.rpc_answered(request.queue)
            return answer
