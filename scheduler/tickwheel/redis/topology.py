"""Which server holds which shard: the only one there is, or the primaries of a Redis Cluster by hash slot. No I/O.

A server of a cluster is named ``host:port``; a single one has the empty name.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from redis.crc import key_slot

SLOTS = 16_384
SINGLE = ""


@lru_cache(maxsize=SLOTS)
def slot_of(shard: int) -> int:
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
        self._known = list(seeds)
        self._primaries: list[str | None] = [None if self.is_cluster else seeds[0]] * SLOTS

    def server(self, shard: int) -> str | None:
        """The server that holds the shard, as far as is known."""
        return self._primaries[slot_of(shard)]

    def one_shard_each(self) -> dict[str, int]:
        """For each primary the first shard that it holds, or would, of as many as there can be."""
        found: dict[str, int] = {}
        wanted = {server for server in self._primaries if server is not None}
        for shard in range(SLOTS):
            server = self.server(shard)
            if server is not None:
                found.setdefault(server, shard)
            if len(found) == len(wanted):
                break
        return found

    def known(self) -> list[str]:
        """All servers that may know the map: primaries, replicas, those that the URL names."""
        return list(self._known)

    def learn(self, slots: Any, told_by: str) -> None:
        """Take over the answer to CLUSTER SLOTS of one of the servers."""
        primaries: list[str | None] = [None] * SLOTS
        known: dict[str, None] = {}
        for first, last, primary, *replicas in slots:
            primaries[first : last + 1] = [named(primary[0], primary[1], told_by)] * (last + 1 - first)
            known |= dict.fromkeys(named(each[0], each[1], told_by) for each in (primary, *replicas))
        self._primaries = primaries
        self._known = list(known | dict.fromkeys(self._seeds))
        self.version += 1

    def moved(self, slot: int, server: str) -> None:
        """A server said that another one has the slot now."""
        self._primaries[slot] = server


def named(host: bytes | str | None, port: int, told_by: str) -> str:
    """The name of a server; one that does not know its own host is reached by the name of who told of it."""
    text = host.decode() if isinstance(host, bytes) else host or ""
    if text in ("", "?"):
        text = told_by.rpartition(":")[0].strip("[]")
    return f"[{text}]:{port}" if ":" in text else f"{text}:{port}"
