"""A Redis Cluster of the bundled Valkey: primaries, replicas, owners of slots, and failovers."""

import math
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from services.process import ServiceError, free_port, wait_until
from services.process_group import ProcessGroup
from services.valkey import ValkeyServer

SLOTS = 16_384
_SETTLED_S = 60.0
# Time after which `fail_over` asks again. A replica abandons a failover after 5 s without a majority of votes. A
# primary refuses its vote, for example, if it has just voted in another failover.
_FAILOVER_S = 6.0


@dataclass(frozen=True)
class NodeView:
    """One node of the cluster, as seen by another node or itself. ``slots`` are ranges: first and last slot."""

    id: str
    port: int
    flags: frozenset[str]
    primary_id: str
    epoch: int
    slots: tuple[tuple[int, int], ...]

    def has(self, slot: int) -> bool:
        """Return whether the node owns the slot."""
        return any(first <= slot <= last for first, last in self.slots)


class RedisCluster(ProcessGroup):
    """The servers of a cluster. ``settings`` apply to every server.

    In the attribute ``nodes``, the servers that start as primaries are first, then those that start as replicas.

    Kill, pause and restart nodes by their own methods. After ``node_timeout_ms`` without an answer, a primary is
    failed over.
    """

    def __init__(
        self,
        folder: Path,
        *,
        primaries: int = 3,
        replicas: int = 3,
        node_timeout_ms: int = 2_000,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._primaries = primaries
        self.nodes = []
        for n in range(primaries + replicas):
            options = {
                "cluster-enabled": "yes",
                "cluster-config-file": "nodes.conf",
                "cluster-port": str(free_port()),
                "cluster-node-timeout": str(node_timeout_ms),
            }
            self.nodes.append(ValkeyServer(f"node-{n}", folder / f"{n}", options | dict(settings or {})))
        super().__init__(self.nodes)

    @property
    def addresses(self) -> str:
        """Host and port of every node, separated by commas."""
        return ",".join(node.address for node in self.nodes)

    @property
    def url(self) -> str:
        """The URL of the cluster, with all of its nodes."""
        return f"redis+cluster://{self.addresses}"

    def wait_until_settled(self, within: float = _SETTLED_S) -> None:
        """Wait until `is_settled`. Raises ServiceError."""
        wait_until(self.is_settled, f"the nodes of the cluster agree ({self.addresses})", within)

    def is_settled(self) -> bool:
        """Return whether the running nodes agree on the owner of every slot, serve all slots, and replicate."""
        running = [node for node in self.nodes if node.is_running]
        owners = set()
        try:
            for node in running:
                view = self.view(node)
                owners.add(frozenset((node.id, node.slots) for node in view if node.slots))
                with node.client() as client:
                    serves = client.cluster("INFO")["cluster_state"] == "ok"
                    follows = client.info("replication").get("master_link_status", "up") == "up"
                if not (serves and follows):
                    return False
        except redis.RedisError:
            return False
        covered = sum(last - first + 1 for _, slots in next(iter(owners)) for first, last in slots)
        return len(owners) == 1 and covered == SLOTS

    def view(self, node: ValkeyServer) -> list[NodeView]:
        """Return all nodes as ``node`` sees them, first ``node``. Raises redis-py's errors if it does not answer."""
        with node.client() as client:
            nodes = client.execute_command("CLUSTER NODES")
        views = [_node_view(address, fields) for address, fields in nodes.items()]
        return sorted(views, key=lambda view: "myself" not in view.flags)

    def id_of(self, node: ValkeyServer) -> str:
        """Return the id of the node in the cluster, which never changes."""
        return str(node.call("CLUSTER", "MYID"))

    def primary_of(self, slot: int) -> ValkeyServer:
        """Return the node that claims to own the slot. Of two such nodes, return that with the newer epoch.

        Raises ServiceError if no node claims it, for example between the death of a primary and its failover.
        """
        claims: list[tuple[int, ValkeyServer]] = []
        for node in self.nodes:
            with suppress(redis.RedisError):
                myself = self.view(node)[0]
                if "master" in myself.flags and myself.has(slot):
                    claims.append((myself.epoch, node))
        if not claims:
            raise ServiceError(f"no node of the cluster has slot {slot}")
        return max(claims, key=lambda claim: claim[0])[1]

    def replicas_of(self, primary: ValkeyServer) -> list[ValkeyServer]:
        """Return the replicas in the view of a primary."""
        myself, *others = self.view(primary)
        ports = {other.port for other in others if other.primary_id == myself.id}
        return [node for node in self.nodes if node.port in ports]

    def fail_over(self, replica: ValkeyServer, *, agreed: bool = True) -> None:
        """Promote a replica to primary of its slots without asking the primary (FORCE). Return once it is promoted.

        With ``agreed`` False, the other primaries are not asked either (TAKEOVER).
        """
        asked_at = -math.inf

        def promoted() -> bool:
            nonlocal asked_at
            if "master" in self.view(replica)[0].flags:
                return True
            if time.monotonic() - asked_at > _FAILOVER_S:
                replica.call("CLUSTER", "FAILOVER", "FORCE" if agreed else "TAKEOVER")
                asked_at = time.monotonic()
            return False

        wait_until(promoted, f"{replica.name} becomes a primary", _SETTLED_S)

    def migrate(self, first: int, last: int, target: ValkeyServer) -> None:
        """Move slots to another primary, each atomically (Valkey 9's CLUSTER MIGRATESLOTS), and wait for the end.

        One primary must own the whole range. Calls to its keys wait for a moment and are redirected with MOVED; none is
        answered with ASK. services/slot_migration.py moves a slot key by key, like older versions.
        """
        source = self.primary_of(first)
        source.call("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", first, last, "NODE", self.id_of(target))
        wait_until(
            lambda: all(self.view(target)[0].has(slot) for slot in range(first, last + 1)),
            f"slots {first} to {last} are moved to {target.name}",
            _SETTLED_S,
        )

    def _join(self) -> None:
        primaries, replicas = self.nodes[: self._primaries], self.nodes[self._primaries :]
        for n, primary in enumerate(primaries):
            first, end = (SLOTS * at // self._primaries for at in (n, n + 1))
            primary.call("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
        for epoch, node in enumerate(self.nodes, start=1):
            node.call("CLUSTER", "SET-CONFIG-EPOCH", epoch)
        for node in self.nodes[1:]:
            host, _, port = node.address.partition(":")
            self.nodes[0].call("CLUSTER", "MEET", host, port, node.call("CONFIG", "GET", "cluster-port")[1])
        wait_until(
            lambda: all(len(self.view(node)) == len(self.nodes) for node in self.nodes),
            "every node of the cluster has joined all others",
            _SETTLED_S,
        )
        for n, replica in enumerate(replicas):
            replica.call("CLUSTER", "REPLICATE", self.id_of(primaries[n % self._primaries]))
        self.wait_until_settled()


def _node_view(address: str, fields: Mapping[str, Any]) -> NodeView:
    return NodeView(
        id=fields["node_id"],
        port=int(address.rpartition(":")[2]),
        flags=frozenset(fields["flags"].split(",")),
        primary_id=fields["master_id"],
        epoch=int(fields["epoch"]),
        slots=tuple((int(slots[0]), int(slots[-1])) for slots in fields["slots"]),
    )
