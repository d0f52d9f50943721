"""A slot of a cluster on its way to another primary, key by key, as operators' tools move it.

Until finish() its keys are at two places: a call for one that has gone is answered with ASK, for some of both with
TRYAGAIN.
"""

from services.redis_cluster import RedisCluster
from services.valkey import ValkeyServer

_BATCH = 100
_MIGRATE_MS = 5_000


class SlotMigration:
    """The move of ``slot`` to the primary ``target``: begin(), then move(), then finish(); or all by run()."""

    def __init__(self, cluster: RedisCluster, slot: int, target: ValkeyServer) -> None:
        self._cluster = cluster
        self._slot = slot
        self._target = target
        self._source = cluster.primary_of(slot)

    def run(self) -> None:
        """Move the slot with all it has."""
        self.begin()
        self.move()
        self.finish()

    def begin(self) -> None:
        """Tell both that the slot is about to move. From now on new keys of it are made at the target."""
        source_id, target_id = self._cluster.id_of(self._source), self._cluster.id_of(self._target)
        self._target.call("CLUSTER", "SETSLOT", self._slot, "IMPORTING", source_id)
        self._source.call("CLUSTER", "SETSLOT", self._slot, "MIGRATING", target_id)

    def move(self, limit: int | None = None) -> int:
        """Move the keys that the source still has, ``limit`` of them at most (default all); how many it moved."""
        host, _, port = self._target.address.partition(":")
        moved = 0
        while count := _BATCH if limit is None else min(_BATCH, limit - moved):
            keys = self._source.call("CLUSTER", "GETKEYSINSLOT", self._slot, count)
            if not keys:
                break
            self._source.call("MIGRATE", host, port, "", 0, _MIGRATE_MS, "KEYS", *keys)
            moved += len(keys)
        return moved

    def finish(self) -> None:
        """Give the slot to the target; the source refuses while it still has keys. Returns once all nodes agree."""
        target_id = self._cluster.id_of(self._target)
        # The target first: were it to hear of it last, a crash in between would leave the slot to nobody.
        for node in (self._target, self._source):
            node.call("CLUSTER", "SETSLOT", self._slot, "NODE", target_id)
        self._cluster.wait_until_settled()
