"""The election by lease, simulated: random faults violate no invariant, and the checks detect planted bugs."""

from collections.abc import Callable

import pytest

from tests.lease_simulation import scenarios
from tests.lease_simulation.faults import run_with_random_faults
from tests.lease_simulation.mutants import planted
from tests.lease_simulation.world import LEASE_MS
from tickwheel.election.lease_row import EVENT_PROCESS, LAST_RESORT

pytestmark = pytest.mark.property

SEEDS = 60
# Random faults show these bugs often. The others have tests of their own below.
FREQUENT = [
    *("no fence", "no new claim", "trims without filing", "trims before publishing"),
    *("equal fences", "ranks are ignored", "loops are not watched"),
]


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_no_invariant_is_violated_under_random_faults(first: int) -> None:
    found = {seed: run_with_random_faults(seed).found for seed in range(first, first + 10)}
    assert not {seed: kinds for seed, kinds in found.items() if kinds}


@pytest.mark.parametrize("mutant", FREQUENT)
def test_a_planted_bug_is_detected(mutant: str) -> None:
    with planted(mutant) as in_simulation:
        assert any(run_with_random_faults(seed, in_simulation).found for seed in range(2 * SEEDS))


@pytest.mark.parametrize(
    ("mutant", "fault", "cost"),
    [
        ("no hold", "lose everything", lambda outcome: outcome.changes),
        ("no damping", "pause five times", lambda outcome: outcome.changes),
        ("undriven shards are kept", "lose a release", lambda outcome: outcome.undriven_ms),
        ("fences are not compared", "pause", lambda outcome: len(outcome.found)),
        ("impatient", "join", lambda outcome: outcome.claims_over_members),
        ("claims again", "pause", lambda outcome: outcome.claims_over_members),
    ],
)
def test_a_rule_that_is_left_out_costs_more(
    mutant: str, fault: str, cost: Callable[[scenarios.Outcome], float]
) -> None:
    def total() -> float:
        # Only a fenced driver with work claims again.
        has_load = mutant == "claims again"
        return sum(cost(scenarios.run(fault, seed, shards=16, has_load=has_load)) for seed in range(3))

    right = total()
    with planted(mutant):
        assert total() > right


@pytest.mark.parametrize("shards", [1, 16])
@pytest.mark.parametrize("fault", ["kill", "clock back and kill", "pause", "hang"])
def test_a_shard_has_a_driver_again_soon_after_a_fault(fault: str, shards: int) -> None:
    for seed in range(3):
        outcome = scenarios.run(fault, seed, shards=shards)
        assert outcome.undriven_ms < 2 * LEASE_MS
        assert not outcome.found


@pytest.mark.parametrize("fault", ["nothing", "clock forward", "clock back", "freeze", "restart", "join last resort"])
def test_no_shard_changes_hands_without_a_cause(fault: str) -> None:
    assert [scenarios.run(fault, seed, shards=16).changes for seed in range(3)] == [0, 0, 0]


def test_a_member_of_the_last_resort_drives_only_while_there_is_no_event_process() -> None:
    alone = scenarios.run("nothing", 1, ranks=(LAST_RESORT,))
    assert alone.changes == 0
    joined = scenarios.run("join", 1, ranks=(LAST_RESORT,))
    assert joined.changes == 4
    assert joined.undriven_ms < 100
    killed = scenarios.run("kill", 1, ranks=(EVENT_PROCESS, LAST_RESORT))
    assert killed.changes == 4
    assert killed.undriven_ms < 2 * LEASE_MS
