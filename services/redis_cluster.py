"""A Redis Cluster of the bundled Valkey: primaries, replicas, who has which slot, and failovers."""

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


@dataclass(frozen=True)
class NodeView:
    """What a node thinks of one node of the cluster, itself among them. ``slots`` are ranges, first and last."""

    id: str
    port: int
    flags: frozenset[str]
    primary_id: str
    epoch: int
    slots: tuple[tuple[int, int], ...]

    def has(self, slot: int) -> bool:
        """Whether the slot is its own."""
        return any(first <= slot <= last for first, last in self.slots)


class RedisCluster(ProcessGroup):
    """``nodes``: first the primaries, then the replicas, as at the start. ``settings`` are those of every node.

    Each node is killed, paused and restarted by its own methods. ``node_timeout_ms``: a primary silent for so long
    is failed over.
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
        """Host and port of every node, with commas between."""
        return ",".join(node.address for node in self.nodes)

    @property
    def url(self) -> str:
        """Where the cluster is, by all of its nodes."""
        return f"redis+cluster://{self.addresses}"

    def wait_until_settled(self, within: float = _SETTLED_S) -> None:
        """Until all nodes that run say so: every slot is served, each has the owner all others see, replicas follow."""
        wait_until(self.is_settled, f"the nodes of the cluster agree ({self.addresses})", within)

    def is_settled(self) -> bool:
        """Whether the nodes that run agree on who has which slot, serve all of them, and replicate."""
        running = [node for node in self.nodes if node.is_running]
        owners = set()
        try:
            for node in running:
                view = self.view(node)
                owners.add(frozenset((seen.id, seen.slots) for seen in view if seen.slots))
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
        """Whom the node knows, itself first. Raises redis-py's errors where it does not answer."""
        with node.client() as client:
            nodes = client.execute_command("CLUSTER NODES")
        seen = [_node_view(address, fields) for address, fields in nodes.items()]
        return sorted(seen, key=lambda view: "myself" not in view.flags)

    def id_of(self, node: ValkeyServer) -> str:
        """The name the node has in the cluster, for life."""
        return str(node.call("CLUSTER", "MYID"))

    def primary_of(self, slot: int) -> ValkeyServer:
        """The node that has the slot by its own words; of two that say so the one with the newer epoch.

        ServiceError where none does, as between the death of a primary and its failover.
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
        """The nodes that follow it, as it sees them itself."""
        myself, *others = self.view(primary)
        ports = {other.port for other in others if other.primary_id == myself.id}
        return [node for node in self.nodes if node.port in ports]

    def fail_over(self, replica: ValkeyServer, *, agreed: bool = True) -> None:
        """Make the replica the primary of its slots, without asking the primary (FORCE); returns once it is.

        ``agreed`` False: without asking the other primaries either (TAKEOVER).
        """
        replica.call("CLUSTER", "FAILOVER", "FORCE" if agreed else "TAKEOVER")
        wait_until(lambda: "master" in self.view(replica)[0].flags, f"{replica.name} becomes a primary", _SETTLED_S)

    def migrate(self, first: int, last: int, target: ValkeyServer) -> None:
        """Move slots to another primary, each whole in one step (Valkey 9's CLUSTER MIGRATESLOTS), and wait for it.

        The range belongs to one primary. Its keys' calls wait a moment and are sent on with MOVED; none gets ASK.
        Slot by slot and key by key, as older versions do, is services.slot_migration.
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
            "every node of the cluster knows all others",
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
