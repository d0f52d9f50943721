"""Follow the history: the transitions of a namespace as the outbox holds them, in order on each shard."""

from tickwheel.operations.context import Core
from tickwheel.plan import Plan, Request, Round
from tickwheel.storage import transition as transitions
from tickwheel.storage.keys import shard_key
from tickwheel.storage.transition import Transition

_PAGE = 1_000


class History:
    """Where the reader stands on each shard: at first before the oldest entry that is kept."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._after = dict.fromkeys(range(core.shards), b"-")

    def next(self) -> Plan[list[Transition]]:
        """What has happened since, a page of each shard; nothing where nothing has."""
        requests = [
            Request(shard, command=("XRANGE", self._key(shard), after, "+", "COUNT", _PAGE))
            for shard, after in self._after.items()
        ]
        replies = yield Round(requests)
        found: list[Transition] = []
        for shard, reply in zip(list(self._after), replies, strict=True):
            for entry_id, fields in reply.value:
                self._after[shard] = b"(" + entry_id
                found += transitions.decode(fields[1])
        return found

    def _key(self, shard: int) -> str:
        return shard_key(self._core.namespace, shard, "events")
