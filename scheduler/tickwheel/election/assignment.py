"""The assignment of shards to members: a pure function with the same result in every member.

The load of a member is the number of its shards. The first goal is balance: whichever members join or leave, the loads
of two members differ by at most one. A hash of members and shards does not achieve that. The second goal is to move as
few shards as possible. If a member joins, it gets its share and no other shard moves. If a member leaves, its shards
are distributed over the others, and no other shard moves.
"""

import json
from collections.abc import Iterable, Mapping, Sequence, Set

from tickwheel.runtime.foreign_data import decode_json

# The id of the member that should drive each shard, in the order of the shards; None if there is no member.
Assignment = list[str | None]
# The errors of `unpack`, and of other parsers, for the data of a node that no version of Tickwheel writes.
UNREADABLE = (ValueError, LookupError, TypeError, ArithmeticError, RecursionError)


def assign(members: Mapping[str, Set[int]], shards: int, previous: Sequence[str | None]) -> Assignment:
    """Return the assignment that follows ``previous``. ``members`` maps each member to its unreachable shards.

    A shard is assigned to a member that can reach the shard, if there is one. Loads may differ by more than one if some
    members cannot reach all shards.
    """
    return assign_by_rank([members], shards, previous)


def assign_by_rank(ranks: Sequence[Mapping[str, Set[int]]], shards: int, previous: Sequence[str | None]) -> Assignment:
    """Return the assignment like `assign`, for members of several ranks, the first rank first.

    A member gets only shards that no member of an earlier rank can reach. A shard that nobody can reach is assigned as
    if the first rank could reach it.
    """
    unreachable_by_all = {
        shard
        for shard in range(shards)
        if all(shard in unreachable for members in ranks for unreachable in members.values())
    }
    driven_by: dict[int, str] = {}
    for members in ranks:
        avoided = {member: frozenset(avoids) - unreachable_by_all for member, avoids in members.items()}
        left = [
            shard
            for shard in range(shards)
            if shard not in driven_by and any(shard not in unreachable for unreachable in avoided.values())
        ]
        driven_by |= _distribute(avoided, left, previous)
    return [driven_by.get(shard) for shard in range(shards)]


def _distribute(
    members: Mapping[str, Set[int]], shards: Iterable[int], previous: Sequence[str | None]
) -> dict[int, str]:
    """Assign each of the shards to a member. At least one member can reach each shard."""
    assigned: dict[str, list[int]] = {member: [] for member in sorted(members)}
    free = []
    for shard in shards:
        member = previous[shard] if shard < len(previous) else None
        if member is not None and member in members and shard not in members[member]:
            assigned[member].append(shard)
        else:
            free.append(shard)
    for shard in free:
        takers = (member for member in assigned if shard not in members[member])
        assigned[min(takers, key=lambda member: len(assigned[member]))].append(shard)
    while _move_one(assigned, members):
        pass
    return {shard: member for member, own_shards in assigned.items() for shard in own_shards}


def pack(assignment: Assignment) -> bytes:
    """Return the stored form: each id once, then a number for each shard, so that many shards take little space."""
    members = sorted({member for member in assignment if member is not None})
    numbers: dict[str | None, int] = {None: -1, **{member: number for number, member in enumerate(members)}}
    return json.dumps({"members": members, "shards": [numbers[member] for member in assignment]}).encode()


def unpack(stored: bytes) -> Assignment:
    """Return the assignment that `pack` encoded; an empty list for no data. Raises UNREADABLE for other data."""
    if not stored:
        return []
    decoded = decode_json(stored)
    members: list[str | None] = [*decoded["members"], None]
    if not all(isinstance(member, str) for member in members[:-1]):
        raise TypeError("a member is not a string")
    return [members[number] for number in decoded["shards"]]


def _move_one(assigned: dict[str, list[int]], unreachable: Mapping[str, Set[int]]) -> bool:
    """Move one shard to a member that has at least two shards fewer. Return whether a shard was moved."""
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
