"""The RPCs of QueueService. Each handler runs a plan on the namespace, as in `message_handlers`."""

from typing import Final

from tickwheel.operations import inspect, queues, settings
from tickwheel.operations.namespace_options import NamespaceOptions
from tickwheel.rpc import message_conversion, queue_conversion
from tickwheel.service.namespaces import Namespaces
from tickwheel.service.resolve_queue import check_permission, resolve_queue
from tickwheel.v1 import queue_service_pb2 as admin

# Fields of the request that are passed on as they are.
_NAMESPACE_FIELDS: Final = ("shards", "history", "auto_create", "outbox_full")


class QueueHandlers:
    """Implements QueueService: one method for each RPC, with the name of the RPC in snake case."""

    def __init__(self, namespaces: Namespaces) -> None:
        self._namespaces = namespaces

    async def open_namespace(self, request: admin.OpenNamespaceRequest) -> admin.OpenNamespaceResponse:
        check_permission(request, None)
        fields = {name: getattr(request, name) for name in _NAMESPACE_FIELDS if request.HasField(name)}
        if request.HasField("clock_guard_ms"):
            fields["clock_guard"] = message_conversion.duration_from_proto(request, "clock_guard_ms")
        if request.HasField("outbox_limit_bytes"):
            fields["outbox_limit"] = request.outbox_limit_bytes
        options = NamespaceOptions.parse(existing=request.existing, **fields)
        namespace = await self._namespaces.open(request.namespace, options)
        return admin.OpenNamespaceResponse(shards=namespace.context.shards)

    async def create_queue(self, request: admin.CreateQueueRequest) -> admin.CreateQueueResponse:
        namespace, queue = await resolve_queue(self._namespaces, request)
        queue_settings = queue_conversion.settings_from_proto(request.settings)
        config = await namespace.run(queues.create(namespace.context, queue, queue_settings, update=request.update))
        return admin.CreateQueueResponse(queue=queue_conversion.queue_to_proto(queue, config))

    async def get_queue(self, request: admin.GetQueueRequest) -> admin.GetQueueResponse:
        namespace, queue = await resolve_queue(self._namespaces, request)
        config = await namespace.run(queues.fetch_config(namespace.context, queue))
        return admin.GetQueueResponse(queue=queue_conversion.queue_to_proto(queue, config))

    async def list_queues(self, request: admin.ListQueuesRequest) -> admin.ListQueuesResponse:
        check_permission(request, None)
        namespace = await self._namespaces.get(request.namespace)
        configs = await namespace.run(queues.list_queues(namespace.context))
        return admin.ListQueuesResponse(queues=[queue_conversion.queue_to_proto(*item) for item in configs.items()])

    async def list_settings(self, request: admin.ListSettingsRequest) -> admin.ListSettingsResponse:
        check_permission(request, None)
        namespace = await self._namespaces.get(request.namespace)
        return admin.ListSettingsResponse(settings=await namespace.run(settings.list_settings(namespace.context)))

    async def get_setting(self, request: admin.GetSettingRequest) -> admin.GetSettingResponse:
        check_permission(request, None)
        namespace = await self._namespaces.get(request.namespace)
        return admin.GetSettingResponse(value=await namespace.run(settings.read(namespace.context, request.name)))

    async def set_setting(self, request: admin.SetSettingRequest) -> admin.SetSettingResponse:
        # A setting belongs to the namespace, so the token must have access to all of its queues.
        check_permission(request, "*")
        namespace = await self._namespaces.get(request.namespace)
        value = request.value if request.HasField("value") else None
        await namespace.run(settings.write(namespace.context, request.name, value))
        return admin.SetSettingResponse()

    async def block_queue(self, request: admin.BlockQueueRequest) -> admin.BlockQueueResponse:
        namespace, queue = await resolve_queue(self._namespaces, request)
        enqueue = request.enqueue_blocked if request.HasField("enqueue_blocked") else None
        dequeue = request.dequeue_blocked if request.HasField("dequeue_blocked") else None
        config = await namespace.run(queues.set_blocks(namespace.context, queue, enqueue, dequeue))
        return admin.BlockQueueResponse(queue=queue_conversion.queue_to_proto(queue, config))

    async def get_counts(self, request: admin.GetCountsRequest) -> admin.GetCountsResponse:
        namespace, queue = await resolve_queue(self._namespaces, request)
        counts, late = await namespace.run(inspect.counts_and_lateness(namespace.context, queue))
        return admin.GetCountsResponse(
            counts=counts, promoted_late_ms=late.promoted, missed_by_ms=late.missed, deadlines=late.deadlines
        )

    async def get_depth(self, request: admin.GetDepthRequest) -> admin.GetDepthResponse:
        namespace, queue = await resolve_queue(self._namespaces, request)
        return admin.GetDepthResponse(
            pending=await namespace.run(inspect.depth(namespace.context, queue, request.where))
        )

    async def get_forecast(self, request: admin.GetForecastRequest) -> admin.GetForecastResponse:
        namespace, queue = await resolve_queue(self._namespaces, request)
        minutes = await namespace.run(inspect.forecast(namespace.context, queue, request.minutes or 60))
        return admin.GetForecastResponse(
            minutes=[
                admin.GetForecastResponse.Minute(start_ms=message_conversion.to_ms(minute.start), due=minute.due)
                for minute in minutes
            ]
        )
