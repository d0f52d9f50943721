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


def one_shard(_: Any) -> int:
    """Return 1: the number of shards for requests that read no more, or do not name their namespace."""
    return 1


@dataclass(frozen=True, slots=True)
class MethodRow:
    """One RPC.

    ``charge`` is the cost of a call in messages: a number or, if the cost is the length of a repeated field of the
    request, the name of this field. ``action`` names the metric that counts messages of the RPC, for example
    ``enqueued``; it is empty if there is no such metric. ``count`` computes the number of these messages from a request
    and its response. ``answer_bytes`` is above 0 if an answer can be large: the size of its turn (`call_limits.Turn`).
    It is also above 0 if many calls can be woken at the same time, of which few may read at a time. Calls that do not
    read the content of messages (``reads_content``) have turns of their own. The handlers of dequeues take their turns
    themselves. A call that ``reads_all_shards``, or writes to all, costs their number divided by `SHARDS_OF_A_MESSAGE`,
    if this is more than ``charge``. If ``charge`` is the name of a field, the call costs the sum of the field's items,
    each of which names a namespace. If the call reads a key for each item of the repeated field ``keys`` on each shard,
    it costs the number of keys divided by `KEYS_OF_A_MESSAGE`, if this is more. ``charge_at_end`` is the name of a
    repeated field of the request: the call is never rejected for its length, which is charged when the call ends. Only
    unary RPCs can have this charge.
    """

    name: str
    role: Role
    charge: int | str = 1
    action: str = ""
    count: Count = lambda _, response: 0
    answer_bytes: int = 0
    reads_content: bool = True
    reads_all_shards: bool = False
    keys: str = ""
    charge_at_end: str = ""

    def cost(self, request: Any, shards: Shards) -> int:
        """Return the cost of a request in messages. If the cost is the length of a field, it is at least 1."""
        if isinstance(self.charge, str):
            items = getattr(request, self.charge)
            if not self.reads_all_shards:
                return max(len(items), 1)
            return max(sum(max(1, shards(item) // limits.SHARDS_OF_A_MESSAGE) for item in items), 1)
        if not self.reads_all_shards:
            return self.charge
        read = shards(request)
        keys = read * len(getattr(request, self.keys)) if self.keys else 0
        return max(self.charge, read // limits.SHARDS_OF_A_MESSAGE, keys // limits.KEYS_OF_A_MESSAGE)

    def cost_at_end(self, request: Any) -> int:
        """Return what a call with this request costs when it ends, in messages."""
        return len(getattr(request, self.charge_at_end)) if self.charge_at_end else 0


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
    MethodRow("EnqueueBatch", Role.PRODUCE, "messages", "enqueued", _created, answer_bytes=_MEDIUM),
    # The handler counts the messages of each request, because each can name another queue.
    MethodRow("EnqueueStream", Role.PRODUCE, "messages"),
    MethodRow("Dequeue", Role.CONSUME, 1, "delivered", _delivered, reads_all_shards=True),
    # `CallObserver` calls ``count`` with each answered request of the batch and the response to this request.
    MethodRow("DequeueBatch", Role.CONSUME, "requests", "delivered", _delivered, reads_all_shards=True),
    MethodRow(
        *("AwaitMessages", Role.CONSUME),
        answer_bytes=_MEDIUM,
        reads_content=False,
        reads_all_shards=True,
        keys="queues",
    ),
    # Only its first request names the namespace, so only this one costs more.
    MethodRow("DequeueStream", Role.CONSUME, 1, "delivered", _delivered, reads_all_shards=True),
    # Calls for leased messages are never rejected: otherwise, other workers would do the same work again. A release
    # costs its leases afterwards, because each of them leaves a timer on the wheel, and its message can be leased again
    # at once.
    MethodRow("Complete", Role.CONSUME, 0, "completed", _not_lost),
    MethodRow("Fail", Role.CONSUME, 0, "failed", _failed),
    MethodRow("Release", Role.CONSUME, 0, "released", _not_lost, charge_at_end="leases"),
    MethodRow("Extend", Role.CONSUME, 0),
    MethodRow("GetLease", Role.CONSUME, 0, answer_bytes=_MEDIUM),
    MethodRow("Cancel", Role.PRODUCE, "ids", "cancelled", _cancelled, answer_bytes=_MEDIUM),
    MethodRow("Reschedule", Role.PRODUCE),
    MethodRow("Redrive", Role.ADMIN),
    MethodRow("GetMessage", Role.READ, answer_bytes=_MEDIUM),
    MethodRow("Explain", Role.READ, answer_bytes=_MEDIUM, reads_all_shards=True),
    MethodRow("ListMessages", Role.READ, answer_bytes=limits.ANSWER_BYTES),
    # QueueService
    MethodRow("OpenNamespace", Role.READ, reads_all_shards=True),
    MethodRow("CreateQueue", Role.ADMIN, reads_all_shards=True),
    MethodRow("GetQueue", Role.READ),
    MethodRow("ListQueues", Role.READ, answer_bytes=limits.ANSWERS_AT_ONCE),
    MethodRow("BlockQueue", Role.ADMIN, reads_all_shards=True),
    MethodRow("PurgeQueue", Role.ADMIN, reads_all_shards=True),
    MethodRow("DeleteQueue", Role.ADMIN, reads_all_shards=True),
    MethodRow("DeleteNamespace", Role.ADMIN),
    MethodRow("GetCounts", Role.READ, answer_bytes=limits.ANSWER_BYTES, reads_all_shards=True),
    MethodRow("GetDepth", Role.READ, answer_bytes=limits.ANSWER_BYTES, reads_all_shards=True),
    MethodRow("GetForecast", Role.READ, answer_bytes=limits.ANSWER_BYTES, reads_all_shards=True),
    MethodRow("ListSettings", Role.READ, answer_bytes=limits.ANSWER_BYTES),
    MethodRow("GetSetting", Role.READ),
    MethodRow("SetSetting", Role.ADMIN),
)
METHOD_TABLE: Final = {row.name: row for row in METHOD_ROWS}
