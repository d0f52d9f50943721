"""Exact order over several shards: how many of the most urgent messages each shard has."""

from collections import Counter
from struct import Struct

from tickwheel import limits
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.dispatch import call_shards
from tickwheel.plan import ContinueWalk, Plan, Request

_BOUNDS = Struct(">HI")
_ORDER = Struct(">QHI")


def shares_per_shard(
    context: NamespaceContext, queue: str, where: bytes, limit: int
) -> Plan[tuple[Counter[int], bool]]:
    """Return how many of the ``limit`` most urgent messages each shard has, and whether there are no other messages.

    The shard with the most urgent message comes first. The *order* of a message is its deadline, and its rank among
    messages with the same deadline. Every shard returns its first ``limit`` orders. A call does a bounded amount of
    work. If a shard reaches this bound after it has found some orders, it may have further messages after the last of
    these orders. So no message of any shard after that order is counted.
    """
    orders: list[tuple[int, int, int, int]] = []
    cursors = dict.fromkeys(range(context.shards), b"")
    known_up_to: list[tuple[int, int, int, int]] = []
    while cursors:

        def build(config: QueueConfig, shard: int) -> Request:
            bounds = _BOUNDS.pack(limit, limits.CALL_ENTRIES)
            args = [config.context(context.history), bounds, cursors[shard], where]
            return Request(shard, context.call("peek_orders", shard, queue, args))

        shards = list(cursors)
        replies = yield from call_shards(context, queue, shards, build)
        for shard, reply in zip(shards, replies, strict=True):
            packed_orders, cursors[shard], short = reply.value
            if cursors[shard]:
                continue
            del cursors[shard]
            orders += [(*order, shard) for order in _ORDER.iter_unpack(packed_orders)]
            if short:
                known_up_to.append(orders[-1])
        if cursors:
            yield ContinueWalk(len(cursors))
    orders.sort()
    certain = [order for order in orders if not known_up_to or order <= min(known_up_to)]
    chosen = certain[:limit]
    return Counter(shard for *_, shard in chosen), not known_up_to and len(orders) <= limit
