"""Whether the deletion of a namespace finds the processes of its election by lease, from their rows over time."""

from collections.abc import Iterator, Mapping
from itertools import chain, repeat

import pytest

from tickwheel.errors import DataLoss
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.removal.election_members import WATCH_S, has_election_members
from tickwheel.plan import Pause, Reply, Round
from tickwheel.storage.keys import election_key

pytestmark = pytest.mark.unit

Rows = Mapping[bytes, bytes]
ASSIGNMENT = {b"assignment": b"x"}


def find(reads: Iterator[Rows]) -> tuple[bool, float]:
    """Return whether there are members, and how long the plan has waited, if each read returns the next rows."""
    plan, waited_s = has_election_members(NamespaceContext("tw")), 0.0
    step = next(plan)
    try:
        while True:
            if isinstance(step, Pause):
                waited_s += step.seconds
                step = plan.send(None)
                continue
            assert isinstance(step, Round)
            assert [request.command for request in step.requests] == [("HGETALL", election_key("tw"))]
            step = plan.send([Reply([part for row in next(reads).items() for part in row])])
    except StopIteration as end:
        return end.value, waited_s


def test_an_election_without_rows_has_no_members() -> None:
    assert find(repeat({})) == (False, 0)
    assert find(repeat(ASSIGNMENT)) == (False, 0)


def test_a_row_that_stays_the_same_is_of_a_process_that_was_killed() -> None:
    has_members, waited_s = find(repeat({b"a": b"1"} | ASSIGNMENT))
    assert not has_members
    assert waited_s >= WATCH_S


@pytest.mark.parametrize(
    "later", [{b"a": b"2"}, {b"a": b"1", b"b": b"1"}], ids=["writes its row again", "another process joins"]
)
def test_a_row_that_changes_is_of_a_process_that_takes_part(later: Rows) -> None:
    has_members, waited_s = find(chain([{b"a": b"1"}, {b"a": b"1"}], repeat(later)))
    assert has_members
    assert waited_s < WATCH_S


def test_a_process_that_leaves_meanwhile_is_no_obstacle() -> None:
    assert not find(chain([{b"a": b"1", b"b": b"1"}], repeat({b"b": b"1"})))[0]


def test_an_election_whose_key_has_another_type_has_no_members() -> None:
    plan = has_election_members(NamespaceContext("tw"))
    next(plan)
    with pytest.raises(StopIteration) as end:
        plan.throw(DataLoss("the key is no hash"))
    assert end.value.value is False
