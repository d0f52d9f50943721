"""The RPCs of the service, one row each: who may call the RPC, what a call costs, and what it counts for in metrics.

Health and reflection have no row: they are services of grpc, and open to everybody.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tickwheel.service.authorization import Role
from tickwheel.v1.message_pb2 import STATE_UNSPECIFIED

Cost = Callable[[Any], int]
Count = Callable[[Any, Any], int]


def _one(_: Any) -> int:
    return 1


def _free(_: Any) -> int:
    """The enqueue paid for leased messages. To refuse the call would only have their work done twice."""
    return 0


def _each(field: str) -> Cost:
    """Count the items of a field of the request, and one for a request without items."""
    return lambda request: max(len(getattr(request, field)), 1)


@dataclass(frozen=True, slots=True)
class MethodRow:
    """One RPC. ``cost`` counts the messages of a request against the token's messages a second.

    ``action`` names what the RPC does to messages, for the metric of that name; it is empty if the RPC moves none.
    ``count`` counts those messages from a request and its response.
    """

    name: str
    role: Role
    cost: Cost = _one
    action: str = ""
    count: Count = lambda _, response: 0


def _delivered(_: Any, response: Any) -> int:
    return len(response.deliveries)


def _not_lost(request: Any, response: Any) -> int:
    return len(request.leases) - len(response.lost)


def _created(_: Any, response: Any) -> int:
    return sum(result.created for result in response.results)


def _failed(_: Any, response: Any) -> int:
    return sum(state != STATE_UNSPECIFIED for state in response.states)


def _changed(_: Any, response: Any) -> int:
    return sum(change.changed for change in response.changes)


METHOD_ROWS: Final = (
    # MessageService
    MethodRow("Enqueue", Role.PRODUCE, _one, "enqueued", lambda _, response: response.result.created),
    MethodRow("EnqueueBatch", Role.PRODUCE, _each("messages"), "enqueued", _created),
    MethodRow("EnqueueStream", Role.PRODUCE, _each("messages"), "enqueued", lambda _, response: response.created),
    MethodRow("Dequeue", Role.CONSUME, _one, "delivered", _delivered),
    # Counted for each poll of the batch.
    MethodRow("DequeueBatch", Role.CONSUME, _each("requests"), "delivered", _delivered),
    MethodRow("DequeueStream", Role.CONSUME, _one, "delivered", _delivered),
    MethodRow("Complete", Role.CONSUME, _free, "completed", _not_lost),
    MethodRow("Fail", Role.CONSUME, _free, "failed", _failed),
    MethodRow("Release", Role.CONSUME, _free, "released", _not_lost),
    MethodRow("Extend", Role.CONSUME, _free),
    MethodRow("GetLease", Role.CONSUME, _free),
    MethodRow("Cancel", Role.PRODUCE, _each("ids"), "cancelled", _changed),
    MethodRow("Reschedule", Role.PRODUCE),
    MethodRow("Redrive", Role.ADMIN),
    MethodRow("GetMessage", Role.READ),
    MethodRow("Explain", Role.READ),
    MethodRow("ListMessages", Role.READ),
    # QueueService
    MethodRow("OpenNamespace", Role.READ),
    MethodRow("CreateQueue", Role.ADMIN),
    MethodRow("GetQueue", Role.READ),
    MethodRow("ListQueues", Role.READ),
    MethodRow("BlockQueue", Role.ADMIN),
    MethodRow("GetCounts", Role.READ),
    MethodRow("GetDepth", Role.READ),
    MethodRow("GetForecast", Role.READ),
    MethodRow("ListSettings", Role.READ),
    MethodRow("GetSetting", Role.READ),
    MethodRow("SetSetting", Role.ADMIN),
)
METHOD_TABLE: Final = {row.name: row for row in METHOD_ROWS}
