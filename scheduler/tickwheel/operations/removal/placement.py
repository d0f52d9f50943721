"""The placement of the data: the processes of the primaries, and the hash slots of each of them.

A search of all primaries has found every key only if the placement is the same before and after the search: a hash slot
that moves to a searched primary takes its keys there, and a restarted or promoted server may have keys again that were
removed.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from tickwheel.operations.server_info import parse_info
from tickwheel.plan import Command, ListPrimaries, Plan, Reply, Request, Round

_DIGITS = 16
# The fields of a line of CLUSTER NODES: the id of the node, flags, the epoch of its slots, and the first hash slots.
_ID, _FLAGS, _EPOCH, _SLOTS = 0, 2, 6, 8

Owner = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """The placement at a moment. ``digest`` differs after a restart, a failover, and the move of a hash slot."""

    shards: dict[str, int]
    """A shard of each primary, by the first digits of the run id: each start of a server has another run id."""
    digest: str


def read_placement() -> Plan[Placement | None]:
    """Return the placement, or None if the primaries of a cluster disagree about it, or move a hash slot key by key."""
    servers: dict[str, int] = yield ListPrimaries()
    commands: list[Command] = [("INFO", "server")]
    if "" not in servers:
        commands.append(("CLUSTER", "NODES"))
    replies: list[Reply] = yield Round(
        [Request(shard, command=command) for command in commands for shard in servers.values()]
    )
    run_ids = [parse_info([reply])["run_id"][:_DIGITS] for reply in replies[: len(servers)]]
    views = [_parse_nodes(reply.value.decode()) for reply in replies[len(servers) :]]
    if not _agree(views):
        return None
    state = sorted([*zip(run_ids, (own for own, _ in views), strict=False)] if views else run_ids)
    digest = hashlib.sha256(repr(state).encode()).hexdigest()[:_DIGITS]
    return Placement(dict(zip(run_ids, servers.values(), strict=True)), digest)


def _parse_nodes(text: str) -> tuple[Owner, frozenset[Owner]]:
    """Return the node that has answered CLUSTER NODES, and all nodes with hash slots that it knows.

    Each node has its id, its epoch and its hash slots. The epoch rises if the node receives a hash slot that it had
    before.
    """
    own: Owner = ()
    owners = set()
    for line in text.splitlines():
        fields = line.split()
        node = (fields[_ID], fields[_EPOCH], *fields[_SLOTS:])
        if "myself" in fields[_FLAGS].split(","):
            own = node
        if fields[_SLOTS:]:
            owners.add(node)
    return own, frozenset(owners)


def _agree(views: Sequence[tuple[Owner, frozenset[Owner]]]) -> bool:
    """Return whether each of these nodes knows exactly these nodes as owners of hash slots.

    Only the own line of a node has the hash slots that it moves key by key. So such nodes do not agree with others.
    """
    return all(owners == {own for own, _ in views} for _, owners in views)
