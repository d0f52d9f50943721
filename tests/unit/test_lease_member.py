"""What a member of an election by lease decides: who has died, and which shards it may claim."""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from tickwheel.election.lease_attendance import Attendance, Attended
from tickwheel.election.lease_member import LeaseMember
from tickwheel.election.lease_row import EVENT_PROCESS, LAST_RESORT, LEASE_MS_MAX, Row
from tickwheel.election.stored_assignment import NONE_STORED, StoredAssignment
from tickwheel.election.unclaimed_shards import UNCLAIMED_MS
from tickwheel.event_process.lease_election import LeaseElection
from tickwheel.runtime.time import monotonic_ms
from tickwheel.storage.fence import StoredClaim, pack_fence

pytestmark = pytest.mark.unit

SHARDS: Final = 2
LEASE_MS: Final = 4_000.0
EMPTY: Final = frozenset[int]()
UNCLAIMED: Final = StoredClaim()
CLAIMED: Final = StoredClaim(pack_fence(1, 0), "lease", "")


class Attendant:
    """A member that takes part at the times of a test. Its rows and its assignments are accepted."""

    def __init__(
        self, rank: int = LAST_RESORT, lease_ms: float = LEASE_MS, *, waits_for_unclaimed: bool = True
    ) -> None:
        self.member = LeaseMember(
            "me",
            SHARDS,
            rank=rank,
            name="host:1",
            lease_ms=lease_ms,
            random=lambda: 0.5,
            waits_for_unclaimed=waits_for_unclaimed,
        )
        self._stored: StoredAssignment = NONE_STORED
        self.attend(0.0, {}, is_first=True)
        self.attend(1.0, {})

    def attend(self, now: float, others: Mapping[str, Row], *, is_first: bool = False) -> Attendance:
        call = self.member.attend(now, is_first=is_first)
        self._stored = call.proposal or self._stored
        rows = {"me": call.row, **others}
        packed = {member: row.pack(SHARDS) for member, row in rows.items()}
        self.member.on_attended(call, Attended(True, packed, self._stored), now, now)
        return call

    def first_removal(self, row: Row, until: float) -> float | None:
        """Return when the member removes a member whose row stays the same from 2 ms on; None if it does not."""
        for now in range(2, int(until), 1_000):
            if self.attend(now, {"other": row}).removals:
                return now - 2.0
        return None

    def may_claim(self, claims: Mapping[int, StoredClaim | None], now: float) -> set[int]:
        """Return the shards that the member may claim over these claims, read at this time."""
        self.member.on_claims(claims, now)
        return {shard for shard, claim in claims.items() if self.member.may_claim(shard, claim, now)}


def row(rank: int = EVENT_PROCESS, beat: int = 1, lease_ms: int = 0, drives: frozenset[int] = EMPTY) -> Row:
    return Row(rank, beat, EMPTY, drives, EMPTY, "host:2", lease_ms)


@pytest.mark.parametrize(
    ("own_ms", "row_ms", "removed_after_ms"),
    [
        (4_000.0, 60_000, 60_000.0),
        (60_000.0, 4_000, 60_000.0),
        (4_000.0, 4_000, 4_000.0),
        (4_000.0, 0, 4_000.0),
        (4_000.0, 2**16 - 1, LEASE_MS_MAX),
    ],
    ids=["longer lease", "shorter lease", "same lease", "row of an earlier version", "lease that is too long"],
)
def test_a_member_counts_as_dead_after_the_longer_lease_of_both(
    own_ms: float, row_ms: int, removed_after_ms: float
) -> None:
    assert Attendant(lease_ms=own_ms).first_removal(row(lease_ms=row_ms), 70_000) == removed_after_ms


def test_a_member_waits_until_the_other_member_would_be_dead() -> None:
    one = Attendant(lease_ms=4_000.0)
    one.attend(2.0, {"other": row(lease_ms=4_500)})
    one.attend(4_002.0, {"other": row(lease_ms=4_500)})
    assert one.member.next_attendance(4_002.0) == 501.0


def test_known_members_are_kept_for_the_longest_lease_after_the_metadata_was_set_back() -> None:
    one = Attendant()
    for beat in (1, 2):
        one.attend(1.0 + beat, {"other": row(beat=beat, lease_ms=20_000)})
    assert not one.member.is_assigned(0)
    # The server has lost its data: the rows and the assignment are gone, except the row that the call has written.
    one._stored = NONE_STORED
    one.attend(1_000.0, {})
    one.attend(19_000.0, {})
    assert not one.member.is_assigned(0)
    one.attend(21_001.0, {})
    one.attend(21_002.0, {})
    assert one.member.is_assigned(0)


def test_a_member_of_the_last_resort_leaves_unclaimed_shards_to_event_processes_for_a_time() -> None:
    one = Attendant()
    unclaimed = dict.fromkeys(range(SHARDS), UNCLAIMED)
    assert one.may_claim(unclaimed, 1_000.0) == set()
    assert one.may_claim(unclaimed, 999.0 + UNCLAIMED_MS) == set()
    assert one.may_claim(unclaimed, 1_000.0 + UNCLAIMED_MS) == set(range(SHARDS))


def test_a_shard_that_a_member_gains_does_not_begin_the_time_again() -> None:
    one = Attendant()
    both = {0: UNCLAIMED, 1: UNCLAIMED}
    one.may_claim({0: UNCLAIMED}, 1_000.0)
    assert one.may_claim(both, 999.0 + UNCLAIMED_MS) == set()
    assert one.may_claim(both, 1_000.0 + UNCLAIMED_MS) == {0, 1}


def test_only_the_time_without_the_server_does_not_count() -> None:
    one = Attendant()
    both = {0: UNCLAIMED, 1: UNCLAIMED}
    one.may_claim(both, 1_000.0)
    one.attend(11_000.0, {})
    one.attend(14_000.0, {}, is_first=True)
    assert one.may_claim(both, 1_000.0 + UNCLAIMED_MS) == set()
    assert one.may_claim(both, 3_999.0 + UNCLAIMED_MS) == set()
    assert one.may_claim(both, 4_000.0 + UNCLAIMED_MS) == {0, 1}


def test_a_server_that_stalls_again_and_again_is_driven_in_the_end() -> None:
    one = Attendant()
    both = {0: UNCLAIMED, 1: UNCLAIMED}
    for stall in range(4):
        start = 1_000.0 + 12_000.0 * stall
        one.attend(start, {}, is_first=True)
        if one.may_claim(both, start + 1.0):
            break
        one.attend(start + 10_000.0, {})
    # 10 s of each 12 s count.
    assert stall == 2


def test_the_time_begins_again_after_a_member_has_driven() -> None:
    one = Attendant()
    both = {0: UNCLAIMED, 1: UNCLAIMED}
    one.may_claim(both, 1_000.0)
    one.attend(2_000.0, {"other": row(LAST_RESORT, drives=frozenset({1}))})
    one.may_claim(both, 2_000.0)
    # The other member has ended, and the claims are forgotten.
    for now in (3_000.0, 3_001.0):
        one.attend(now, {})
    assert one.may_claim(both, 1_000.0 + UNCLAIMED_MS) == set()
    assert one.may_claim(both, 1_000.0 + 2 * UNCLAIMED_MS) == {0, 1}


def test_a_member_that_has_not_written_its_row_for_half_a_lease_takes_over_no_shard() -> None:
    one = Attendant()
    one.attend(999.0, {"other": row()})
    one.attend(1_000.0, {"other": row(beat=2)})
    assert one.member.others(1_000.0 + LEASE_MS / 2 - 1) == ["other"]
    assert one.member.others(1_000.0 + LEASE_MS / 2) == []
    one.attend(3_000.0, {"other": row(beat=3)})
    assert one.member.others(3_000.0) == ["other"]
    one.attend(4_000.0, {"other": row(beat=4, lease_ms=20_000)})
    assert one.member.others(13_999.0) == ["other"]
    assert one.member.others(14_000.0) == []
    one.attend(14_001.0, {})
    assert one.member.others(14_001.0) == []


def test_a_row_that_was_there_before_may_be_of_a_member_that_was_killed() -> None:
    one = Attendant()
    one.attend(1_000.0, {"killed": row(), "other": row()})
    assert one.member.others(1_000.0) == []
    one.attend(2_000.0, {"killed": row(), "other": row(beat=2)})
    assert one.member.others(2_000.0) == ["other"]
    # After a new connection, this member still knows which of them write their rows.
    one.attend(3_000.0, {"killed": row(), "other": row(beat=2)}, is_first=True)
    assert one.member.others(3_000.0) == ["other"]


def test_only_members_that_write_their_rows_count_as_others_with_higher_ids() -> None:
    def connect(shard: int) -> Any:
        raise AssertionError(shard)

    election = LeaseElection(connect, "tw", SHARDS, rank=LAST_RESORT, lease_ms=60_000.0)

    def attend(beats: Mapping[str, int]) -> tuple[int, bool]:
        now = monotonic_ms()
        call = election._state.attend(now, is_first=False)
        packed = {member: row(beat=beat).pack(SHARDS) for member, beat in beats.items()}
        election._state.on_attended(call, Attended(True, packed, NONE_STORED), now, now)
        return election.others, election.has_higher_members

    try:
        # Ids are hexadecimal numbers, so this one is between the two others.
        assert attend({"!": 1, "z": 1}) == (0, False)
        assert attend({"!": 2, "z": 1}) == (1, False)
        assert attend({"!": 3, "z": 2}) == (2, True)
        assert attend({"!": 4}) == (1, False)
    finally:
        election.close()


@pytest.mark.parametrize(("others", "longest_ms"), [(0, 20), (9, 20), (49, 100), (99, 200), (999, 200)])
def test_many_members_answer_the_same_event_later_but_within_a_fifth_of_a_second(others: int, longest_ms: int) -> None:
    one = Attendant()
    rows = {f"m{n}": row(LAST_RESORT) for n in range(others)}
    one.member.driving = {0, 1}
    one.attend(2.0, rows)
    # The others must hear that the member no longer drives. `random` returns 0.5.
    one.member.driving = set()
    assert one.member.next_attendance(3.0) == longest_ms / 2


@pytest.mark.parametrize("kind", ["zookeeper", "lockfile", "later"])
def test_a_claim_of_another_kind_keeps_members_of_the_last_resort_from_all_unclaimed_shards(kind: str) -> None:
    one = Attendant()
    claims = {0: StoredClaim(pack_fence(1, 7), kind), 1: UNCLAIMED}
    one.may_claim(claims, 0.0)
    assert one.may_claim(claims, 2 * UNCLAIMED_MS) == set()


def test_nobody_waits_for_the_kind_of_a_namespace_that_is_driven_by_lease() -> None:
    assert Attendant().may_claim({0: CLAIMED, 1: UNCLAIMED}, 10.0) == {0, 1}
    one = Attendant()
    one.attend(10.0, {"other": row(LAST_RESORT, drives=frozenset({1}))})
    shard = next(shard for shard in range(SHARDS) if one.member.is_assigned(shard))
    assert one.may_claim({shard: UNCLAIMED}, 11.0) == {shard}


def test_an_event_process_claims_unclaimed_shards_at_once() -> None:
    unclaimed = dict.fromkeys(range(SHARDS), UNCLAIMED)
    assert Attendant(EVENT_PROCESS).may_claim(unclaimed, 2.0) == set(range(SHARDS))


def test_a_process_whose_user_has_demanded_that_it_drives_claims_unclaimed_shards_at_once() -> None:
    unclaimed = dict.fromkeys(range(SHARDS), UNCLAIMED)
    assert Attendant(waits_for_unclaimed=False).may_claim(unclaimed, 2.0) == set(range(SHARDS))


def test_a_claim_that_cannot_be_read_may_be_missing() -> None:
    unread: dict[int, StoredClaim | None] = {0: None}
    assert Attendant(EVENT_PROCESS).may_claim(unread, 2.0) == {0}
    one = Attendant()
    assert one.may_claim(unread, 2.0) == set()
    assert one.may_claim(unread, 2.0 + UNCLAIMED_MS) == {0}
    assert Attendant().may_claim({0: None, 1: CLAIMED}, 2.0) == {0, 1}
