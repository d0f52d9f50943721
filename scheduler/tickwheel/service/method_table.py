"""The RPCs of the service, one row each: the role that a caller needs, the cost of a call, and the metric of the RPC.

Health and reflection have no row: see `standard_services`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tickwheel import limits
from tickwheel.service.authorization import Role
from tickwheel.v1.message_pb2 import STATE_UNSPECIFIED

# Returns the number of shards of the namespace that a request names.
Shards = Callable[[Any], int]
Count = Callable[[Any, Any], int]
# The cost of a shard, in messages.
_SHARD: Final = 1 / limits.SHARDS_OF_A_MESSAGE


def one_shard(_: Any) -> int:
    """Return 1: the number of shards for requests that read no more, or do not name their namespace."""
    return 1


@dataclass(frozen=True, slots=True)
class MethodRow:
    """One RPC.

    ``items`` is the name of the repeated field of the items if the call is for a batch. ``charge`` is the cost of a
    call or, for a batch, of an item, in messages. ``action`` names the metric that counts messages of the RPC, for
    example ``enqueued``; it is empty if there is no such metric. ``count`` computes the number of these messages from a
    request and its response. ``answer_bytes`` is above 0 if an answer can be large: the size of its turn
    (`answer_limits.Turn`). It is also above 0 if many calls can be woken at the same time, of which few may read at a
    time. Calls that do not read the content of messages (``reads_content``) have turns of their own. The handlers of
    dequeues take their turns themselves. A call that ``reads_all_shards``, or writes to all, costs the sum of what each
    costs, if this is more than ``charge``; ``shard_cost`` returns the cost of a shard for a request. For a batch, each
    item names a namespace, and has this cost. ``charge_at_end`` is the cost of an item that is charged when the call
    ends. No call is rejected for it, and only unary RPCs have it. ``item_size`` is the size of an item in the turns of
    its caller (`RequestReader.take_turn`): how many other items take as long. ``size`` is the size of a call that is
    not for a batch, but takes as long as one.
    """

    name: str
    role: Role
    charge: int = 1
    action: str = ""
    count: Count = lambda _, response: 0
    answer_bytes: int = 0
    reads_content: bool = True
    reads_all_shards: bool = False
    shard_cost: Callable[[Any], float] = lambda _: _SHARD
    items: str = ""
    charge_at_end: int = 0
    item_size: int = 1
    size: int = 0

    def cost(self, request: Any, shards: Shards) -> int:
        """Return the cost of a request in messages. A batch without items costs as much as with one."""
        if self.items:
            if not self.reads_all_shards:
                return max(self.count_items(request), 1) * self.charge
            items = getattr(request, self.items)
            return max(sum(max(self.charge, int(shards(item) * _SHARD)) for item in items), 1)
        if not self.reads_all_shards:
            return self.charge
        return max(self.charge, int(shards(request) * self.shard_cost(request)))

    def cost_at_end(self, request: Any) -> int:
        """Return what a call with this request costs when it ends, in messages."""
        return self.charge_at_end and self.count_items(request) * self.charge_at_end

    def count_items(self, request: Any) -> int:
        """Return the number of items of a batch, and 0 for any other request."""
        return len(getattr(request, self.items)) if self.items else 0

    def turn_size(self, request: Any) -> int:
        """Return the size of the turn of a request."""
        return self.size or self.count_items(request) * self.item_size


def cost_of_messages(count: int) -> int:
    """Return what a call that has read ``count`` messages costs in addition.

    The handler charges this as soon as the messages are read, and so before it converts them: a client can end the call
    at any time.
    """
    return count // limits.READ_OF_A_MESSAGE


def _created(_: Any, response: Any) -> int:
    return sum(result.created for result in response.results)


def _delivered(_: Any, response: Any) -> int:
    return len(response.deliveries)


def _not_lost(request: Any, response: Any) -> int:
    return len(request.leases) - len(response.lost)


def _failed(_: Any, response: Any) -> int:
    return sum(state != STATE_UNSPECIFIED for state in response.states)


def _cancelled(_: Any, response: Any) -> int:
    return sum(change.changed for change in response.changes)


# A message, or the results of a batch.
_MEDIUM: Final = 256 * 1024
METHOD_ROWS: Final = (
    # MessageService
    MethodRow("Enqueue", Role.PRODUCE, 1, "enqueued", lambda _, response: response.result.created),
    MethodRow("EnqueueBatch", Role.PRODUCE, 1, "enqueued", _created, answer_bytes=_MEDIUM, items="messages"),
    # The handler counts the messages of each request, because each can name another queue.
    MethodRow("EnqueueStream", Role.PRODUCE, items="messages"),
    MethodRow(
        *("Dequeue", Role.CONSUME, 1, "delivered", _delivered),
        reads_all_shards=True,
    ),
    # `CallObserver` calls ``count`` with each answered request of the batch and the response to this request.
    MethodRow(
        *("DequeueBatch", Role.CONSUME, 1, "delivered", _delivered),
        reads_all_shards=True,
        items="requests",
        item_size=5,
    ),
    MethodRow(
        *("AwaitMessages", Role.CONSUME),
        answer_bytes=_MEDIUM,
        reads_content=False,
        reads_all_shards=True,
        shard_cost=lambda request: max(_SHARD, len(request.queues) / limits.KEYS_OF_A_MESSAGE),
    ),
    # Only its first request names the namespace, so only this one costs more.
    MethodRow("DequeueStream", Role.CONSUME, 1, "delivered", _delivered, reads_all_shards=True),
    # Calls for leased messages are never rejected: otherwise, other workers would do the same work again. A release
    # costs its leases afterwards, because each of them leaves a timer on the wheel, and its message can be leased again
    # at once.
    MethodRow("Complete", Role.CONSUME, 0, "completed", _not_lost, items="leases"),
    MethodRow("Fail", Role.CONSUME, 0, "failed", _failed, items="items"),
    MethodRow("Release", Role.CONSUME, 0, "released", _not_lost, items="leases", charge_at_end=1),
    MethodRow("Extend", Role.CONSUME, 0, items="leases"),
    MethodRow("GetLease", Role.CONSUME, 0, answer_bytes=_MEDIUM),
    MethodRow("Cancel", Role.PRODUCE, 1, "cancelled", _cancelled, answer_bytes=_MEDIUM, items="ids"),
    MethodRow("Reschedule", Role.PRODUCE),
    MethodRow("Redrive", Role.ADMIN),
    MethodRow("GetMessage", Role.READ, answer_bytes=_MEDIUM),
    MethodRow("Explain", Role.READ, answer_bytes=_MEDIUM, reads_all_shards=True),
    MethodRow(
        *("ListMessages", Role.READ),
        answer_bytes=limits.ANSWER_BYTES,
        size=limits.CALLER_ITEMS,
    ),
    # QueueService
    MethodRow("OpenNamespace", Role.READ, reads_all_shards=True),
    MethodRow("CreateQueue", Role.ADMIN, reads_all_shards=True),
    MethodRow("GetQueue", Role.READ),
    MethodRow(
        *("ListQueues", Role.READ),
        answer_bytes=limits.UNLIMITED_ANSWER_BYTES,
    ),
    MethodRow("BlockQueue", Role.ADMIN, reads_all_shards=True),
    MethodRow("PurgeQueue", Role.ADMIN, reads_all_shards=True),
    MethodRow("DeleteQueue", Role.ADMIN, reads_all_shards=True),
    MethodRow("DeleteNamespace", Role.ADMIN),
    # Many calls share a check, so a call costs no more in a namespace with many shards.
    MethodRow("CheckDrivers", Role.READ),
    MethodRow("GetCounts", Role.READ, answer_bytes=limits.ANSWER_BYTES, reads_all_shards=True),
    MethodRow("GetDepth", Role.READ, answer_bytes=limits.ANSWER_BYTES, reads_all_shards=True),
    MethodRow(
        *("GetForecast", Role.READ),
        answer_bytes=limits.UNLIMITED_ANSWER_BYTES,
        reads_all_shards=True,
        shard_cost=lambda request: max(
            _SHARD, min(request.minutes or 60, limits.FORECAST_MINUTES_MAX) / limits.MINUTES_OF_A_MESSAGE
        ),
    ),
    MethodRow("ListSettings", Role.READ, answer_bytes=limits.ANSWER_BYTES),
    MethodRow("GetSetting", Role.READ),
    MethodRow("SetSetting", Role.ADMIN),
)
METHOD_TABLE: Final = {row.name: row for row in METHOD_ROWS}
