"""What a member does next about a shard, by the candidates that stand there."""

import pytest

from tickwheel.election.candidacy import Deposed, HandOver, LookOut, Stand, Step, WaitFor, Win, Withdraw, next_step

pytestmark = pytest.mark.unit

ME = "me"
MINE, MINE_TOO = "me-0000000007", "me-0000000009"
FIRST, LAST = "another-0000000003", "another-0000000011"


@pytest.mark.parametrize(
    ("candidates", "step"),
    [
        ([], Stand()),
        ([FIRST], Stand()),
        ([MINE, LAST], Win(MINE)),
        ([LAST, MINE, FIRST], WaitFor(FIRST)),
        ([FIRST, MINE, "third-0000000005"], WaitFor("third-0000000005")),
        ([MINE_TOO, FIRST, MINE], Withdraw([MINE_TOO])),
    ],
)
def test_who_is_to_have_the_shard_stands_waits_and_wins(candidates: list[str], step: Step) -> None:
    assert next_step(candidates, ME, assigned_to=ME, wanted=True, leading=None) == step


@pytest.mark.parametrize(("assigned_to", "wanted"), [(ME, False), ("another", True), (None, True)])
def test_who_does_not_want_the_shard_or_is_not_to_have_it_withdraws(assigned_to: str | None, wanted: bool) -> None:
    assert next_step([FIRST], ME, assigned_to=assigned_to, wanted=wanted, leading=None) is None
    step = next_step([MINE, MINE_TOO], ME, assigned_to=assigned_to, wanted=wanted, leading=None)
    assert step == Withdraw([MINE, MINE_TOO])


@pytest.mark.parametrize(
    ("candidates", "assigned_to", "step"),
    [
        ([MINE], ME, None),
        ([MINE, LAST], ME, None),
        ([MINE], "another", LookOut()),
        ([MINE, "third-0000000010"], "another", LookOut()),
        ([MINE, LAST], "another", HandOver()),
        ([MINE], None, LookOut()),
        ([MINE, MINE_TOO], ME, Withdraw([MINE_TOO])),
        ([], ME, Deposed()),
        ([MINE_TOO], ME, Deposed()),
    ],
)
def test_a_leader_goes_on_until_who_is_to_follow_stands(
    candidates: list[str], assigned_to: str | None, step: Step | None
) -> None:
    assert next_step(candidates, ME, assigned_to=assigned_to, wanted=False, leading=MINE) == step
