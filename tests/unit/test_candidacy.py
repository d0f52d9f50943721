"""The next step of an election member for a shard, which depends on the candidates of the shard."""

import pytest

from tickwheel.election.candidacy import (
    ClaimLeadership,
    CreateCandidate,
    LeadershipLost,
    RemoveCandidates,
    Step,
    WatchForSuccessor,
    WatchPredecessor,
    YieldLeadership,
    next_step,
)

pytestmark = pytest.mark.unit

ME = "me"
MINE, MINE_TOO = "me-0000000007", "me-0000000009"
FIRST, LAST = "another-0000000003", "another-0000000011"


@pytest.mark.parametrize(
    ("candidates", "step"),
    [
        ([], CreateCandidate()),
        ([FIRST], CreateCandidate()),
        ([MINE, LAST], ClaimLeadership(MINE)),
        ([LAST, MINE, FIRST], WatchPredecessor(FIRST)),
        ([FIRST, MINE, "third-0000000005"], WatchPredecessor("third-0000000005")),
        ([MINE_TOO, FIRST, MINE], RemoveCandidates([MINE_TOO])),
    ],
)
def test_a_member_assigned_to_the_shard_becomes_a_candidate_waits_and_wins(candidates: list[str], step: Step) -> None:
    assert next_step(candidates, ME, assigned_to=ME, wanted=True, winning_candidate=None) == step


@pytest.mark.parametrize(("assigned_to", "wanted"), [(ME, False), ("another", True), (None, True)])
def test_a_member_that_does_not_want_the_shard_or_is_not_assigned_withdraws(
    assigned_to: str | None, wanted: bool
) -> None:
    assert next_step([FIRST], ME, assigned_to=assigned_to, wanted=wanted, winning_candidate=None) is None
    step = next_step([MINE, MINE_TOO], ME, assigned_to=assigned_to, wanted=wanted, winning_candidate=None)
    assert step == RemoveCandidates([MINE, MINE_TOO])


@pytest.mark.parametrize(
    ("candidates", "assigned_to", "step"),
    [
        ([MINE], ME, None),
        ([MINE, LAST], ME, None),
        ([MINE], "another", WatchForSuccessor()),
        ([MINE, "third-0000000010"], "another", WatchForSuccessor()),
        ([MINE, LAST], "another", YieldLeadership()),
        ([MINE], None, WatchForSuccessor()),
        ([MINE, MINE_TOO], ME, RemoveCandidates([MINE_TOO])),
        ([], ME, LeadershipLost()),
        ([MINE_TOO], ME, LeadershipLost()),
    ],
)
def test_a_leader_continues_until_its_successor_is_a_candidate(
    candidates: list[str], assigned_to: str | None, step: Step | None
) -> None:
    assert next_step(candidates, ME, assigned_to=assigned_to, wanted=False, winning_candidate=MINE) == step
