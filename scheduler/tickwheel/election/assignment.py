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
    unreachable_by_all = frozenset.intersection(*map(frozenset[int], members.values()))
    unreachable = {member: frozenset(own_shards) - unreachable_by_all for member, own_shards in sorted(members.items())}
    assigned: dict[str, list[int]] = {member: [] for member in unreachable}
    free = []
    for shard in range(shards):
        member = previous[shard] if shard < len(previous) else None
        if member is not None and member in unreachable and shard not in unreachable[member]:
            assigned[member].append(shard)
        else:
            free.append(shard)
    for shard in free:
        takers = (member for member in assigned if shard not in unreachable[member])
        assigned[min(takers, key=lambda member: len(assigned[member]))].append(shard)
    while _move_one(assigned, unreachable):
        pass
    driven_by = {shard: member for member, own_shards in assigned.items() for shard in own_shards}
    return [driven_by[shard] for shard in range(shards)]


def pack(assignment: Assignment) -> bytes:
    """As it is stored: ids once, then their numbers, so that many shards take little room."""
    members = sorted({member for member in assignment if member is not None})
    numbers: dict[str | None, int] = {None: -1, **{member: number for number, member in enumerate(members)}}
    return json.dumps({"members": members, "shards": [numbers[member] for member in assignment]}).encode()


def unpack(stored: bytes) -> Assignment:
    """What `pack` made; empty for anything else, so that the next assignment repairs it."""
    try:
        decoded = json.loads(stored)
        members = [*map(str, decoded["members"]), None]
        return [members[number] for number in decoded["shards"]]
    except (ValueError, LookupError, TypeError):
        return []


def _move_one(assigned: dict[str, list[int]], unreachable: Mapping[str, Set[int]]) -> bool:
    """Move a shard from one that has at least two more to one that has fewer, if there is such a shard."""
    by_load = sorted(assigned, key=lambda member: len(assigned[member]))
    for giver in reversed(by_load):
        for taker in by_load:
            if len(assigned[giver]) - len(assigned[taker]) < 2:
                break
            for index in reversed(range(len(assigned[giver]))):
                if assigned[giver][index] not in unreachable[taker]:
                    assigned[taker].append(assigned[giver].pop(index))
                    return True
    return False
