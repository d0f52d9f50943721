"""The RPCs of QueueService. Each handler runs a plan on the namespace, as in `message_handlers`."""

from collections.abc import Callable
from functools import partial
from typing import Final

from tickwheel import limits
from tickwheel.errors import InvalidArgument, NamespaceNotFound
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations import inspect, queues, settings
from tickwheel.operations.namespace_options import NamespaceOptions
from tickwheel.operations.removal.delete_queue import QueueDeletion
from tickwheel.operations.removal.purge import Purge
from tickwheel.rpc import message_conversion, queue_conversion
from tickwheel.runtime.chunks import iter_chunks
from tickwheel.runtime.event_loop import append_all
from tickwheel.service.authorization import ALL_QUEUES, CALL, Role
from tickwheel.service.namespaces import Namespace, Namespaces
from tickwheel.service.request_fields import request_sessions
from tickwheel.service.resolve_queue import (
    check_permission,
    has_role,
    may_create_namespace,
    name_the_creators,
    on_queue,
    resolve_namespace,
)
from tickwheel.v1 import queue_service_pb2 as admin

# Fields of the request that are passed on as they are.
_NAMESPACE_FIELDS: Final = ("shards", "history", "auto_create", "outbox_full")

# Queues that are converted without a pause. This takes about 0.5 ms.
_QUEUES_AT_ONCE: Final = 20


class SerializedAnswer:
    """An answer whose parts are serialized already: protobuf appends the lists of the parts to each other.

    To serialize an answer with 20,000 queues as a whole takes the event loop about 20 ms.
    """

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def SerializeToString(self) -> bytes:  # the name that messages of protobuf have
        """Return the bytes of the answer."""
        return b"".join(self.parts)


class _ListCost:
    """What a list of queues costs. Rows that are read another time cost nothing more."""

    def __init__(self, is_permitted: Callable[[str], bool]) -> None:
        self._is_permitted = is_permitted
        # The rows that were read, and those that the caller may see.
        self._rows = self._permitted = 0
        self._earlier = 0

    @property
    def messages(self) -> int:
        """The cost in messages: that of the longest reading of the rows."""
        now = self._rows // limits.ROWS_OF_A_MESSAGE + self._permitted // limits.QUEUES_OF_A_MESSAGE
        return max(self._earlier, now)

    def begin(self) -> None:
        """Begin to read all rows, the first or another time."""
        self._earlier, self._rows, self._permitted = self.messages, 0, 0

    def is_permitted(self, queue: str) -> bool:
        """Count a row, and return whether the caller may see it."""
        self._rows += 1
        self._permitted += (is_one := self._is_permitted(queue))
        return is_one


class QueueHandlers:
    """Implements QueueService: one method for each RPC, with the name of the RPC in snake case."""

    def __init__(self, namespaces: Namespaces) -> None:
        self.namespaces = namespaces

    async def open_namespace(self, request: admin.OpenNamespaceRequest) -> admin.OpenNamespaceResponse:
        check_permission(request, None)
        fields = {name: getattr(request, name) for name in _NAMESPACE_FIELDS if request.HasField(name)}
        if request.HasField("clock_guard_ms"):
            fields["clock_guard"] = message_conversion.duration_from_proto(request, "clock_guard_ms")
        if request.HasField("outbox_limit_bytes"):
            fields["outbox_limit"] = request.outbox_limit_bytes
        # Creation fixes the shards and the history of the namespace for good.
        existing = request.existing or not may_create_namespace(request)
        options = self.namespaces.limit_creation(NamespaceOptions.parse(existing=existing, **fields))
        try:
            namespace = await self.namespaces.open(request.namespace, options)
        except NamespaceNotFound as error:
            raise name_the_creators(request, error) from None
        return admin.OpenNamespaceResponse(shards=namespace.context.shards)

    @on_queue
    async def create_queue(
        self, request: admin.CreateQueueRequest, namespace: Namespace, queue: str
    ) -> admin.CreateQueueResponse:
        queue_settings = queue_conversion.settings_from_proto(request.settings)
        caller, _ = CALL.get()
        config = await namespace.run(
            queues.create(
                namespace.context,
                queue,
                queue_settings,
                update=request.update,
                charge=caller.quota.charge,
                check_sink=partial(caller.check_sink, namespace.context.namespace, queue),
            )
        )
        return admin.CreateQueueResponse(queue=queue_conversion.queue_to_proto(queue, config))

    @on_queue
    async def get_queue(
        self, request: admin.GetQueueRequest, namespace: Namespace, queue: str
    ) -> admin.GetQueueResponse:
        config = await namespace.run(namespace.context.fetch_config(queue))
        return admin.GetQueueResponse(queue=queue_conversion.queue_to_proto(queue, config))

    async def list_queues(self, request: admin.ListQueuesRequest) -> SerializedAnswer:
        namespace = await resolve_namespace(self.namespaces, request)
        cost = _ListCost(lambda queue: has_role(Role.READ, request, queue))
        try:
            listed = await namespace.run(queues.list_queues(namespace.context, cost.is_permitted, cost.begin))
        finally:
            CALL.get()[0].quota.charge(cost.messages)
        answer = SerializedAnswer()
        await append_all(answer.parts, iter_chunks(list(listed.items()), _QUEUES_AT_ONCE), _serialize_queues, 1)
        return answer

    async def list_settings(self, request: admin.ListSettingsRequest) -> admin.ListSettingsResponse:
        namespace = await resolve_namespace(self.namespaces, request)
        return admin.ListSettingsResponse(settings=await namespace.run(settings.list_settings(namespace.context)))

    async def get_setting(self, request: admin.GetSettingRequest) -> admin.GetSettingResponse:
        namespace = await resolve_namespace(self.namespaces, request)
        return admin.GetSettingResponse(value=await namespace.run(settings.read(namespace.context, request.name)))

    async def set_setting(self, request: admin.SetSettingRequest) -> admin.SetSettingResponse:
        # A setting belongs to the namespace, so the token must have access to all of its queues.
        namespace = await resolve_namespace(self.namespaces, request, ALL_QUEUES)
        value = message_conversion.optional_field(request, "value")
        await namespace.run(settings.write(namespace.context, request.name, value))
        return admin.SetSettingResponse()

    @on_queue
    async def block_queue(
        self, request: admin.BlockQueueRequest, namespace: Namespace, queue: str
    ) -> admin.BlockQueueResponse:
        blocks = [message_conversion.optional_field(request, name) for name in ("enqueue_blocked", "dequeue_blocked")]
        config = await namespace.run(queues.set_blocks(namespace.context, queue, *blocks))
        return admin.BlockQueueResponse(queue=queue_conversion.queue_to_proto(queue, config))

    @on_queue
    async def purge_queue(
        self, request: admin.PurgeQueueRequest, namespace: Namespace, queue: str
    ) -> admin.PurgeQueueResponse:
        states = list(map(message_conversion.state_from_proto, request.states)) or None
        purge = Purge(namespace.context, queue, states, request.page_token)
        removed = await namespace.run(purge.next(await request_sessions(request)))
        return admin.PurgeQueueResponse(removed=removed, next_page_token=purge.token)

    @on_queue
    async def delete_queue(
        self, request: admin.DeleteQueueRequest, namespace: Namespace, queue: str
    ) -> admin.DeleteQueueResponse:
        deletion = QueueDeletion(namespace.context, queue, request.purge, request.page_token)
        removed = await namespace.run(deletion.next(await request_sessions(request)))
        return admin.DeleteQueueResponse(removed=removed, next_page_token=deletion.token)

    async def delete_namespace(self, request: admin.DeleteNamespaceRequest) -> admin.DeleteNamespaceResponse:
        check_permission(request, ALL_QUEUES)
        if not request.namespace:
            # Elsewhere, a request without a namespace means the default namespace.
            raise InvalidArgument("the request names no namespace: set the field namespace to the namespace to delete")
        removed, token = await self.namespaces.delete(request.namespace, request.page_token)
        return admin.DeleteNamespaceResponse(removed=removed, next_page_token=token)

    async def check_drivers(self, request: admin.CheckDriversRequest) -> admin.CheckDriversResponse:
        namespace = await resolve_namespace(self.namespaces, request)
        return admin.CheckDriversResponse(warning=await namespace.driver_check.find_warning())

    @on_queue
    async def get_counts(
        self, request: admin.GetCountsRequest, namespace: Namespace, queue: str
    ) -> admin.GetCountsResponse:
        counts, late = await namespace.run(inspect.counts_and_lateness(namespace.context, queue))
        return admin.GetCountsResponse(
            counts=counts, promoted_late_ms=late.promoted, missed_by_ms=late.missed, deadlines=late.deadlines
        )

    @on_queue
    async def get_depth(
        self, request: admin.GetDepthRequest, namespace: Namespace, queue: str
    ) -> admin.GetDepthResponse:
        return admin.GetDepthResponse(
            pending=await namespace.run(inspect.depth(namespace.context, queue, request.where))
        )

    @on_queue
    async def get_forecast(
        self, request: admin.GetForecastRequest, namespace: Namespace, queue: str
    ) -> admin.GetForecastResponse:
        minutes = await namespace.run(inspect.forecast(namespace.context, queue, request.minutes or 60))
        return admin.GetForecastResponse(
            minutes=[
                admin.GetForecastResponse.Minute(start_ms=message_conversion.to_ms(minute.start), due=minute.due)
                for minute in minutes
            ]
        )


def _serialize_queues(queues: list[tuple[str, QueueConfig]]) -> bytes:
    """Return the bytes of a part of a list of queues."""
    listed = [queue_conversion.queue_to_proto(name, config) for name, config in queues]
    return admin.ListQueuesResponse(queues=listed).SerializeToString()
