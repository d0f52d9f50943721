"""The server of each shard: the single server, or a primary of a Redis Cluster, by hash slot. No I/O.

The hash slots of each primary are read from the cluster. Redirects correct them.

A server of a cluster is named ``host:port``. The name of a single server is empty.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from redis.crc import key_slot
from redis.exceptions import AskError, InvalidResponse, MovedError

from tickwheel.plan import BROKEN_ANSWER

HASH_SLOTS = 16_384
SINGLE = ""
# A host name, an IPv4 address, or an IPv6 address with an optional zone.
_HOST = re.compile(r"[\w.-]+|[0-9A-Fa-f:.]+(%[\w.-]+)?")
# The maximum number of attempts in a row that end in a redirect. After more redirects, the round pauses and then reads
# the slots again: if servers redirect in a circle, they are moving slots, and need time.
MAX_REDIRECTS = 4


@lru_cache(maxsize=HASH_SLOTS)
def hash_slot(shard: int) -> int:
    """Return the hash slot of a shard. All keys of a shard have the hash tag ``{shard}``."""
    return key_slot(b"%d" % shard)


class Topology:
    """The primary of each hash slot, as last read from the cluster. Thread-safe.

    An outdated entry is harmless: the server that it names redirects the call to the right server. ``version`` is the
    number of reads; before the first read, no hash slot of a cluster has a primary.
    """

    def __init__(self, seeds: Sequence[str] = (SINGLE,), check: Callable[[str], None] | None = None) -> None:
        """``seeds`` are the servers that the URL names. ``check`` raises an error for a server that must not be used:
        then the answer that names the server changes nothing.
        """
        self.is_cluster = seeds[0] != SINGLE
        self.version = 0
        self._check = check
        self._seeds = list(seeds)
        self._nodes = list(seeds)
        self._primaries: list[str | None] = [None if self.is_cluster else seeds[0]] * HASH_SLOTS

    def server(self, shard: int) -> str | None:
        """Return the server of the shard, or None if it is unknown."""
        return self._primaries[hash_slot(shard)]

    def representative_shards(self) -> dict[str, int]:
        """Return a shard for each primary: the lowest number whose hash slot belongs to the primary.

        The namespace may be too small to have a shard of this number.
        """
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
        """Return all servers that can report the slots: primaries, replicas, and the servers of the URL."""
        return list(self._nodes)

    def update_from_cluster_slots(self, slots: Any, reported_by: str) -> None:
        """Replace the primaries by a server's answer to CLUSTER SLOTS.

        Raises InvalidResponse for another answer, and the error of ``check`` for a server that must not be used.
        """
        try:
            self._update(slots, reported_by)
        except BROKEN_ANSWER as error:
            raise InvalidResponse(f"the answer to CLUSTER SLOTS cannot be read: {error!r:.200}") from error

    def _update(self, slots: Any, reported_by: str) -> None:
        primaries: list[str | None] = [None] * HASH_SLOTS
        nodes: dict[str, None] = {}
        for first, last, primary, *replicas in slots:
            if not 0 <= first <= last < HASH_SLOTS:
                raise ValueError(f"{first} to {last} are not hash slots")
            primaries[first : last + 1] = [node_name(primary[0], primary[1], reported_by)] * (last + 1 - first)
            nodes |= dict.fromkeys(node_name(node[0], node[1], reported_by) for node in (primary, *replicas))
        if self._check is not None:
            for node in nodes:
                self._check(node)
        self._primaries = primaries
        self._nodes = list(nodes | dict.fromkeys(self._seeds))
        self.version += 1

    def follow_redirect(self, error: AskError, reported_by: str) -> str | None:
        """Process a redirect in answer to a call.

        MOVED: the hash slot has another primary from now on. Return None: `server` returns the new primary. ASK: the
        slot is being moved key by key. Return the server for this call only; the primary does not change.
        """
        server = node_name(error.host, error.port, reported_by)
        if not isinstance(error, MovedError):
            return server
        self.apply_moved(error.slot_id, server)
        return None

    def apply_moved(self, moved_slot: int, server: str) -> None:
        """Update one hash slot after a MOVED redirect."""
        self._primaries[moved_slot] = server


def node_name(host: bytes | str | None, port: int, reported_by: str) -> str:
    """Return the name of a server. A server reported without a host has the host of ``reported_by``.

    Raises ValueError if the host is no name and no address. In a URL, such a host could change the options of the
    connection, for example the check of the certificate.
    """
    text = host.decode() if isinstance(host, bytes) else host or ""
    if text in ("", "?"):
        text = reported_by.rpartition(":")[0].strip("[]")
    if not _HOST.fullmatch(text):
        raise ValueError(f"{text!r:.100} is not the host of a server")
    return f"[{text}]:{port}" if ":" in text else f"{text}:{port}"
