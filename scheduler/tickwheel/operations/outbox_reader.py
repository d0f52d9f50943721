"""Reads the history of a namespace: the transitions in the outbox, in order on each shard."""

from tickwheel.operations.context import NamespaceContext
from tickwheel.plan import Plan, Request, Round
from tickwheel.storage.keys import shard_key
from tickwheel.storage.transition import OutboxTransition, decode

_PAGE = 1_000


class OutboxReader:
    """A reader of the outbox with a position on each shard, initially before the oldest entry."""

    def __init__(self, context: NamespaceContext) -> None:
        self._context = context
        self._last_ids = dict.fromkeys(range(context.shards), b"-")

    def next(self) -> Plan[list[OutboxTransition]]:
        """Return the transitions of up to _PAGE further entries of each shard; an empty list if there are none yet."""
        namespace = self._context.namespace
        requests = [
            Request(shard, command=("XRANGE", shard_key(namespace, shard, "events"), after, "+", "COUNT", _PAGE))
            for shard, after in self._last_ids.items()
        ]
        replies = yield Round(requests)
        page: list[OutboxTransition] = []
        for shard, reply in zip(list(self._last_ids), replies, strict=True):
            for entry_id, fields in reply.value:
                self._last_ids[shard] = b"(" + entry_id
                page += decode(fields[1])
        return page
