"""Whether a program that drains finds out that nobody drives: the leader has ended, or was killed."""

import pytest

from tickwheel.client.driver_watch import Signs
from tickwheel.client.leader_watch import LeaderWatch
from tickwheel.election.lease_options import SESSION_TIMEOUT
from tickwheel.election.lease_row import LAST_RESORT, Row
from tickwheel.operations.removal.election_members import Rows
from tickwheel.storage.fence import pack_fence

pytestmark = pytest.mark.unit

LEASE_MS = 1_000 * SESSION_TIMEOUT.total_seconds()
NEVER = Signs(b"", "", b"", b"")
LED = Signs(pack_fence(3, 7), "lease", b"100", b"")
RELEASED = Signs(pack_fence(3, 0), "lease", b"100", b"")
LOCKED = Signs(pack_fence(3, 0), "lockfile", b"100", b"")


def rows(beat: int, lease_ms: int = 0) -> Rows:
    empty: frozenset[int] = frozenset()
    return {b"a": Row(LAST_RESORT, beat, empty, empty, empty, "host:1", lease_ms).pack(1)}


def judge(*observed: tuple[float, Signs, Rows]) -> list[bool]:
    """Return the result of each check: its time, the signs of the only shard, and the rows of the election."""
    watch = LeaderWatch("tw")
    return [watch.judge({0: signs}, own, now) for now, signs, own in observed]


def test_a_shard_that_stays_released_has_no_leader() -> None:
    assert judge((0, RELEASED, rows(1)), (1_000, RELEASED, rows(2))) == [False, True]


def test_a_shard_that_is_handed_over_has_a_leader() -> None:
    again = Signs(pack_fence(4, 0), "lease", b"100", b"")
    assert judge((0, RELEASED, rows(1)), (1_000, LED, rows(2)), (2_000, again, rows(3))) == [False] * 3


@pytest.mark.parametrize("signs", [NEVER, LOCKED])
def test_other_shards_without_a_leader_by_lease_are_left_alone(signs: Signs) -> None:
    assert judge(*((1_000 * n, signs, rows(n)) for n in range(9))) == [False] * 9


@pytest.mark.parametrize("left", [rows(1), {}, {b"a": b"of another program"}], ids=["row", "no row", "unreadable"])
def test_if_nobody_writes_a_row_for_a_lease_all_others_were_killed(left: Rows) -> None:
    results = judge((0, LED, rows(0)), (1, LED, left), (LEASE_MS, LED, left), (LEASE_MS + 1, LED, left))
    assert results == [False, False, False, True]


def test_a_process_with_a_long_lease_writes_its_row_seldom() -> None:
    row = rows(1, 60_000)
    assert judge((0, LED, row), (59_999, LED, row), (60_000, LED, row)) == [False, False, True]


def test_one_process_that_writes_its_row_suffices() -> None:
    killed = {b"killed": b"1"}
    assert judge(*((LEASE_MS * n, LED, {**killed, **rows(n)}) for n in range(5))) == [False] * 5
