"""The move of a slot of a cluster to another primary, key by key, like operators' tools do.

Until `finish`, the keys of the slot are on two nodes. A call for a key that has moved is answered with ASK, and a call
for keys on both nodes with TRYAGAIN.
"""

from services.redis_cluster import RedisCluster
from services.valkey import ValkeyServer

_BATCH = 100
_MIGRATE_MS = 5_000


class SlotMigration:
    """The move of ``slot`` to the primary ``target``: `begin`, then `move`, then `finish`; or all with `run`."""

    def __init__(self, cluster: RedisCluster, slot: int, target: ValkeyServer) -> None:
        self._cluster = cluster
        self._slot = slot
        self._target = target
        self._source = cluster.primary_of(slot)

    def run(self) -> None:
        """Move the slot with all its keys."""
        self.begin()
        self.move()
        self.finish()

    def begin(self) -> None:
        """Announce the move to both nodes. From now on new keys of the slot are created at the target."""
        source_id, target_id = self._cluster.id_of(self._source), self._cluster.id_of(self._target)
        self._target.call("CLUSTER", "SETSLOT", self._slot, "IMPORTING", source_id)
        self._source.call("CLUSTER", "SETSLOT", self._slot, "MIGRATING", target_id)

    def move(self, limit: int | None = None) -> int:
        """Move up to ``limit`` of the keys that the source still has (default all). Return the number of moved keys."""
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
        """Assign the slot to the target. The source rejects this while it has keys. Return once all nodes agree."""
        target_id = self._cluster.id_of(self._target)
        # The target first: in the other order, a crash in between would leave the slot without an owner.
        for node in (self._target, self._source):
            node.call("CLUSTER", "SETSLOT", self._slot, "NODE", target_id)
        self._cluster.wait_until_settled()
