"""Which member is to drive which shard: a pure function that every member computes alike.

Even first: loads differ by at most one whoever joins or leaves, which a hash of members and shards alone does not give.
Then as little as possible moves: a joiner gets its share and nothing else moves; what a leaver had is shared out.
"""

import json
from collections.abc import Mapping, Sequence, Set

# Which member, by its id, is to drive each shard, in the order of the shards; None: there is no member.
Assignment = list[str | None]


def assign(members: Mapping[str, Set[int]], shards: int, previous: Sequence[str | None]) -> Assignment:
    """The assignment that follows ``previous``. ``members`` says of each which shards it avoids.

    A shard goes to a member that avoids it only where all do. Loads may differ by more where shards are avoided.
    """
    if not members:
        return [None] * shards
    avoided_by_all = frozenset.intersection(*map(frozenset[int], members.values()))
    avoids = {member: frozenset(its) - avoided_by_all for member, its in sorted(members.items())}
    held: dict[str, list[int]] = {member: [] for member in avoids}
    free = []
    for shard in range(shards):
        member = previous[shard] if shard < len(previous) else None
        if member is not None and member in avoids and shard not in avoids[member]:
            held[member].append(shard)
        else:
            free.append(shard)
    for shard in free:
        takers = (member for member in held if shard not in avoids[member])
        held[min(takers, key=lambda member: len(held[member]))].append(shard)
    while _move_one(held, avoids):
        pass
    driven_by = {shard: member for member, its in held.items() for shard in its}
    return [driven_by[shard] for shard in range(shards)]


def pack(assignment: Assignment) -> bytes:
    """As it is stored: ids once, then their numbers, so that many shards take little room."""
    members = sorted({member for member in assignment if member is not None})
    numbers: dict[str | None, int] = {None: -1, **{member: number for number, member in enumerate(members)}}
    return json.dumps({"members": members, "shards": [numbers[member] for member in assignment]}).encode()


def unpack(stored: bytes) -> Assignment:
    """What `pack` made; empty for anything else, so that the next assignment repairs it."""
    try:
        found = json.loads(stored)
        members = [*map(str, found["members"]), None]
        return [members[number] for number in found["shards"]]
    except (ValueError, LookupError, TypeError):
        return []


def _move_one(held: dict[str, list[int]], avoids: Mapping[str, Set[int]]) -> bool:
    """Move a shard from one that has at least two more to one that has fewer, if there is such a shard."""
    by_load = sorted(held, key=lambda member: len(held[member]))
    for giver in reversed(by_load):
        for taker in by_load:
            if len(held[giver]) - len(held[taker]) < 2:
                break
            for at in reversed(range(len(held[giver]))):
                if held[giver][at] not in avoids[taker]:
                    held[taker].append(held[giver].pop(at))
                    return True
    return False
