"""Which server holds which shard: the only one there is, or the primaries of a Redis Cluster by hash slot. No I/O.

A server of a cluster is named ``host:port``; a single one has the empty name.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from redis.crc import key_slot

HASH_SLOTS = 16_384
SINGLE = ""


@lru_cache(maxsize=HASH_SLOTS)
def hash_slot(shard: int) -> int:
    """The hash slot of a shard, all of whose keys carry the tag ``{shard}``."""
    return key_slot(b"%d" % shard)


class Topology:
    """The map as it was last read. Safe to share between threads: each of its entries is right or leads to one that is.

    ``version`` counts how often it was read; before the first time a cluster's map is empty.
    """

    def __init__(self, seeds: Sequence[str] = (SINGLE,)) -> None:
        """``seeds`` are the servers that the URL names."""
        self.is_cluster = seeds[0] != SINGLE
        self.version = 0
        self._seeds = list(seeds)
        self._nodes = list(seeds)
        self._primaries: list[str | None] = [None if self.is_cluster else seeds[0]] * HASH_SLOTS

    def server(self, shard: int) -> str | None:
        """The server that holds the shard, as far as is known."""
        return self._primaries[hash_slot(shard)]

    def representative_shards(self) -> dict[str, int]:
        """For each primary the first shard that it holds, or would, of as many as there can be."""
        shards: dict[str, int] = {}
        wanted = {server for server in self._primaries if server is not None}
        for shard in range(HASH_SLOTS):
            server = self.server(shard)
            if server is not None:
                shards.setdefault(server, shard)
            if len(shards) == len(wanted):
                break
        return shards

    def all_nodes(self) -> list[str]:
        """All servers that may know the map: primaries, replicas, those that the URL names."""
        return list(self._nodes)

    def update_from_cluster_slots(self, slots: Any, reported_by: str) -> None:
        """Take over the answer to CLUSTER SLOTS of one of the servers."""
        primaries: list[str | None] = [None] * HASH_SLOTS
        nodes: dict[str, None] = {}
        for first, last, primary, *replicas in slots:
            primaries[first : last + 1] = [node_name(primary[0], primary[1], reported_by)] * (last + 1 - first)
            nodes |= dict.fromkeys(node_name(node[0], node[1], reported_by) for node in (primary, *replicas))
        self._primaries = primaries
        self._nodes = list(nodes | dict.fromkeys(self._seeds))
        self.version += 1

    def apply_moved(self, moved_slot: int, server: str) -> None:
        """A server said that another one has the slot now."""
        self._primaries[moved_slot] = server


def node_name(host: bytes | str | None, port: int, reported_by: str) -> str:
    """The name of a server; one that does not know its own host is reached by the name of who told of it."""
    text = host.decode() if isinstance(host, bytes) else host or ""
    if text in ("", "?"):
        text = reported_by.rpartition(":")[0].strip("[]")
    return f"[{text}]:{port}" if ":" in text else f"{text}:{port}"
