"""Who is to drive which shard: even, and as little moves as can."""

from random import Random

import pytest
from hypothesis import given, strategies as st

from tickwheel.election.assignment import Assignment, assign, pack, unpack

pytestmark = pytest.mark.property

SHARDS = st.integers(1, 70)
NAMES = st.lists(st.text("0123456789abcdef", min_size=1, max_size=4), min_size=1, max_size=9, unique=True)


@st.composite
def settled(draw: st.DrawFn) -> tuple[list[str], int, Assignment]:
    """Members, shards, and an assignment that some joins and leaves have led to."""
    shards = draw(SHARDS)
    found: Assignment = []
    members: list[str] = []
    for members in draw(st.lists(NAMES, min_size=1, max_size=4)):
        found = assign(dict.fromkeys(members, frozenset()), shards, found)
    return members, shards, found


def loads(members: list[str], assignment: Assignment) -> list[int]:
    return [assignment.count(member) for member in members]


@given(NAMES, SHARDS, st.data())
def test_loads_differ_by_at_most_one_whatever_was_before(members: list[str], shards: int, data: st.DataObject) -> None:
    before = data.draw(st.lists(st.sampled_from([*members, "gone", None]), max_size=shards + 2))
    found = assign(dict.fromkeys(members, frozenset()), shards, before)
    assert len(found) == shards
    assert set(found) <= set(members)
    assert max(loads(members, found)) - min(loads(members, found)) <= 1


@given(settled())
def test_a_join_moves_the_joiners_share_and_nothing_else(world: tuple[list[str], int, Assignment]) -> None:
    members, shards, before = world
    after = assign(dict.fromkeys([*members, "joiner"], frozenset()), shards, before)
    assert {now for now, then in zip(after, before, strict=True) if now != then} <= {"joiner"}
    assert after.count("joiner") == shards // (len(members) + 1)


@given(settled())
def test_a_leave_moves_what_the_leaver_had_and_nothing_else(world: tuple[list[str], int, Assignment]) -> None:
    [leaver, *others], shards, before = world
    after = assign(dict.fromkeys(others, frozenset()), shards, before)
    if others:
        assert {then for now, then in zip(after, before, strict=True) if now != then} <= {leaver}
    else:
        assert after == [None] * shards


@given(settled(), st.data())
def test_a_shard_is_avoided_unless_all_avoid_it(world: tuple[list[str], int, Assignment], data: st.DataObject) -> None:
    members, shards, before = world
    avoids = {member: data.draw(st.frozensets(st.integers(0, shards - 1))) for member in members}
    after = assign(avoids, shards, before)
    for shard, member in enumerate(after):
        assert member is not None
        assert shard not in avoids[member] or all(shard in each for each in avoids.values())


@given(settled(), st.randoms())
def test_every_member_computes_the_same_and_then_there_is_nothing_to_change(
    world: tuple[list[str], int, Assignment], chance: Random
) -> None:
    members, shards, before = world
    joined = [*members, "joiner"]
    after = assign(dict.fromkeys(joined, frozenset()), shards, before)
    chance.shuffle(joined)
    assert assign(dict.fromkeys(joined, frozenset()), shards, before) == after
    assert assign(dict.fromkeys(joined, frozenset()), shards, after) == after


@given(settled())
def test_an_assignment_is_stored_and_read_again(world: tuple[list[str], int, Assignment]) -> None:
    _, _, assignment = world
    assert unpack(pack(assignment)) == assignment
    assert unpack(pack([*assignment, None])) == [*assignment, None]


@pytest.mark.parametrize("damaged", [b"", b"{}", b"[]", b'{"members": [], "shards": [7]}', b"\xff"])
def test_a_damaged_assignment_counts_as_none(damaged: bytes) -> None:
    assert unpack(damaged) == []
