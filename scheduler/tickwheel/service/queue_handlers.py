"""The calls of QueueService, each as a plan on its namespace, as in `message_handlers`."""

from typing import Final

from tickwheel.operations import inspect as look
from tickwheel.operations import queues, settings
from tickwheel.rpc import message_conversion as conversion
from tickwheel.rpc import queue_conversion
from tickwheel.service.namespaces import Namespaces
from tickwheel.service.resolve_queue import check, named
from tickwheel.v1 import queue_service_pb2 as admin

# What is told of a namespace as it is.
_NAMESPACE: Final = ("shards", "history", "auto_create", "outbox_full")


class QueueHandlers:
    """One method for each call of QueueService, named like it."""

    def __init__(self, namespaces: Namespaces) -> None:
        self._namespaces = namespaces

    async def open_namespace(self, request: admin.OpenNamespaceRequest) -> admin.OpenNamespaceResponse:
        check(request, None)
        asked = {name: getattr(request, name) for name in _NAMESPACE if request.HasField(name)}
        if request.HasField("clock_guard_ms"):
            asked["clock_guard"] = conversion.given_ms(request, "clock_guard_ms")
        if request.HasField("outbox_limit_bytes"):
            asked["outbox_limit"] = request.outbox_limit_bytes
        found = await self._namespaces.open(request.namespace, existing=request.existing, **asked)
        return admin.OpenNamespaceResponse(shards=found.core.shards)

    async def create_queue(self, request: admin.CreateQueueRequest) -> admin.CreateQueueResponse:
        namespace, queue = await named(self._namespaces, request)
        given = queue_conversion.given_settings(request.settings)
        config = await namespace.run(queues.create(namespace.core, queue, given, update=request.update))
        return admin.CreateQueueResponse(queue=queue_conversion.queue_of(queue, config))

    async def get_queue(self, request: admin.GetQueueRequest) -> admin.GetQueueResponse:
        namespace, queue = await named(self._namespaces, request)
        config = await namespace.run(queues.current(namespace.core, queue))
        return admin.GetQueueResponse(queue=queue_conversion.queue_of(queue, config))

    async def list_queues(self, request: admin.ListQueuesRequest) -> admin.ListQueuesResponse:
        check(request, None)
        namespace = await self._namespaces.get(request.namespace)
        found = await namespace.run(queues.listed(namespace.core))
        return admin.ListQueuesResponse(queues=[queue_conversion.queue_of(*each) for each in found.items()])

    async def list_settings(self, request: admin.ListSettingsRequest) -> admin.ListSettingsResponse:
        check(request, None)
        namespace = await self._namespaces.get(request.namespace)
        return admin.ListSettingsResponse(settings=await namespace.run(settings.listed(namespace.core)))

    async def get_setting(self, request: admin.GetSettingRequest) -> admin.GetSettingResponse:
        check(request, None)
        namespace = await self._namespaces.get(request.namespace)
        return admin.GetSettingResponse(value=await namespace.run(settings.read(namespace.core, request.name)))

    async def set_setting(self, request: admin.SetSettingRequest) -> admin.SetSettingResponse:
        # A setting is of the namespace, so it takes a token for all of its queues.
        check(request, "*")
        namespace = await self._namespaces.get(request.namespace)
        value = request.value if request.HasField("value") else None
        await namespace.run(settings.write(namespace.core, request.name, value))
        return admin.SetSettingResponse()

    async def block_queue(self, request: admin.BlockQueueRequest) -> admin.BlockQueueResponse:
        namespace, queue = await named(self._namespaces, request)
        enqueue = request.enqueue_blocked if request.HasField("enqueue_blocked") else None
        dequeue = request.dequeue_blocked if request.HasField("dequeue_blocked") else None
        config = await namespace.run(queues.set_blocks(namespace.core, queue, enqueue, dequeue))
        return admin.BlockQueueResponse(queue=queue_conversion.queue_of(queue, config))

    async def get_counts(self, request: admin.GetCountsRequest) -> admin.GetCountsResponse:
        namespace, queue = await named(self._namespaces, request)
        counts, late = await namespace.run(look.counts_and_lateness(namespace.core, queue))
        return admin.GetCountsResponse(
            counts=counts, promoted_late_ms=late.promoted, missed_by_ms=late.missed, deadlines=late.deadlines
        )

    async def get_depth(self, request: admin.GetDepthRequest) -> admin.GetDepthResponse:
        namespace, queue = await named(self._namespaces, request)
        return admin.GetDepthResponse(pending=await namespace.run(look.depth(namespace.core, queue, request.where)))

    async def get_forecast(self, request: admin.GetForecastRequest) -> admin.GetForecastResponse:
        namespace, queue = await named(self._namespaces, request)
        minutes = await namespace.run(look.forecast(namespace.core, queue, request.minutes or 60))
        return admin.GetForecastResponse(
            minutes=[
                admin.GetForecastResponse.Minute(start_ms=conversion.to_ms(minute.start), due=minute.due)
                for minute in minutes
            ]
        )
