"""The assignment of shards to members: balanced, with as few moves as possible."""

from random import Random

import pytest
from hypothesis import given, strategies as st

from tickwheel.election.assignment import UNREADABLE, Assignment, assign, pack, unpack

pytestmark = pytest.mark.property

SHARDS = st.integers(1, 70)
NAMES = st.lists(st.text("0123456789abcdef", min_size=1, max_size=4), min_size=1, max_size=9, unique=True)


@st.composite
def settled(draw: st.DrawFn) -> tuple[list[str], int, Assignment]:
    """Draw members, shards, and an assignment that results from some joins and leaves."""
    shards = draw(SHARDS)
    assignment: Assignment = []
    members: list[str] = []
    for members in draw(st.lists(NAMES, min_size=1, max_size=4)):
        assignment = assign(dict.fromkeys(members, frozenset()), shards, assignment)
    return members, shards, assignment


def loads(members: list[str], assignment: Assignment) -> list[int]:
    return [assignment.count(member) for member in members]


@given(NAMES, SHARDS, st.data())
def test_loads_differ_by_at_most_one_after_any_assignment(members: list[str], shards: int, data: st.DataObject) -> None:
    before = data.draw(st.lists(st.sampled_from([*members, "gone", None]), max_size=shards + 2))
    assignment = assign(dict.fromkeys(members, frozenset()), shards, before)
    assert len(assignment) == shards
    assert set(assignment) <= set(members)
    assert max(loads(members, assignment)) - min(loads(members, assignment)) <= 1


@given(settled())
def test_a_join_moves_only_the_share_of_the_new_member(world: tuple[list[str], int, Assignment]) -> None:
    members, shards, before = world
    after = assign(dict.fromkeys([*members, "joiner"], frozenset()), shards, before)
    assert {now for now, then in zip(after, before, strict=True) if now != then} <= {"joiner"}
    assert after.count("joiner") == shards // (len(members) + 1)


@given(settled())
def test_a_leave_moves_only_the_shards_of_the_leaving_member(world: tuple[list[str], int, Assignment]) -> None:
    [leaver, *others], shards, before = world
    after = assign(dict.fromkeys(others, frozenset()), shards, before)
    if others:
        assert {then for now, then in zip(after, before, strict=True) if now != then} <= {leaver}
    else:
        assert after == [None] * shards


@given(settled(), st.data())
def test_a_shard_is_not_assigned_to_members_that_avoid_it_unless_all_avoid_it(
    world: tuple[list[str], int, Assignment], data: st.DataObject
) -> None:
    members, shards, before = world
    avoids = {member: data.draw(st.frozensets(st.integers(0, shards - 1))) for member in members}
    after = assign(avoids, shards, before)
    for shard, member in enumerate(after):
        assert member is not None
        assert shard not in avoids[member] or all(shard in shards_avoided for shards_avoided in avoids.values())


@given(settled(), st.randoms())
def test_every_member_computes_the_same_assignment_and_a_second_computation_changes_nothing(
    world: tuple[list[str], int, Assignment], chance: Random
) -> None:
    members, shards, before = world
    joined = [*members, "joiner"]
    after = assign(dict.fromkeys(joined, frozenset()), shards, before)
    chance.shuffle(joined)
    assert assign(dict.fromkeys(joined, frozenset()), shards, before) == after
    assert assign(dict.fromkeys(joined, frozenset()), shards, after) == after


@given(settled())
def test_a_stored_assignment_can_be_read(world: tuple[list[str], int, Assignment]) -> None:
    _, _, assignment = world
    assert unpack(pack(assignment)) == assignment
    assert unpack(pack([*assignment, None])) == [*assignment, None]


@pytest.mark.parametrize(
    "damaged",
    [
        b"{}",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b"1" * 5_000,
        b'{"members": [], "shards": [7]}',
        b'{"members": [], "shards": [NaN]}',
        b'{"members": ["a"], "shards": ["0"]}',
        b'{"members": [["a"]], "shards": [0]}',
        b'{"members": 7, "shards": [0]}',
        b'{"members": ["a"], "shards": 1e999}',
    ],
)
def test_a_damaged_assignment_is_an_error_that_the_membership_expects(damaged: bytes) -> None:
    with pytest.raises(UNREADABLE):
        unpack(damaged)


def test_a_new_node_has_no_assignment() -> None:
    assert unpack(b"") == []
