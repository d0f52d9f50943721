"""The election by lease, simulated: random faults violate no invariant, and the checks detect planted bugs."""

import os
import random
from collections.abc import Callable

import pytest

from tests.lease_simulation import faults, scenarios
from tests.lease_simulation.faults import run_of_the_last_resort, run_with_random_faults
from tests.lease_simulation.mutants import planted
from tests.lease_simulation.world import LEASE_MS, World
from tests.support.soak import IN_SOAK
from tickwheel.election.lease_row import EVENT_PROCESS, LAST_RESORT
from tickwheel.election.unclaimed_shards import UNCLAIMED_MS
from tickwheel.event_process.namespace_watch import LONG_INTERVAL_S
from tickwheel.event_process.obstacle_watch import CHECK_MS, STANDBY_CHECK_MS

pytestmark = pytest.mark.property

# A slice in `make test`, all in `make soak`.
SEEDS, LAST_RESORT_SEEDS, SUCCESSOR_SEEDS = (40, 20, 2) if IN_SOAK else (20, 10, 1)
# The seeds that may be necessary to detect a bug.
MUTANT_SEEDS, LAST_RESORT_MUTANT_SEEDS = 80, 20
# The claims of a soak: about 400 runs.
MANY_CLAIMS = 10_000 * int(os.environ.get("TICKWHEEL_SOAK", "1"))
# The calls of 200 processes that start within two seconds, in the first four seconds.
CALLS_OF_STARTS = 7_000
# The longest time in which a shard that changes hands has no driver.
HAND_OVER_MS = 50
# More calls than a process makes from the kill of a leader until the process drives the leader's shard.
CALLS_OF_SUCCESSOR = 30
# Random faults show these bugs often. The others have tests of their own below.
FREQUENT = [
    *("no fence", "no new claim", "trims without filing", "trims before publishing"),
    *("equal fences", "ranks are ignored", "loops are not watched"),
]


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_no_invariant_is_violated_under_random_faults(first: int) -> None:
    found = {seed: run_with_random_faults(seed).found for seed in range(first, first + 10)}
    assert not {seed: kinds for seed, kinds in found.items() if kinds}


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_no_invariant_is_violated_in_ten_thousand_claims() -> None:
    # Each soak has new seeds. `python -m tests.lease_simulation runs 1 SEED` repeats a run.
    claims, seed = 0, random.SystemRandom().randrange(10_000, 1 << 32)
    while claims < MANY_CLAIMS:
        result = run_with_random_faults(seed)
        assert not result.found, f"seed {seed}"
        claims, seed = claims + result.claims, seed + 1


@pytest.mark.parametrize("mutant", FREQUENT)
def test_a_planted_bug_is_detected(mutant: str) -> None:
    with planted(mutant) as in_simulation:
        assert any(run_with_random_faults(seed, in_simulation).found for seed in range(MUTANT_SEEDS))


@pytest.mark.parametrize("first", range(0, LAST_RESORT_SEEDS, 10))
def test_members_of_the_last_resort_alone_drive_a_new_namespace_under_random_faults(first: int) -> None:
    found = {seed: run_of_the_last_resort(seed).found for seed in range(first, first + 10)}
    assert not {seed: kinds for seed, kinds in found.items() if kinds}


@pytest.mark.parametrize("mutant", ["gained shards restart the time", "connections restart the time"])
def test_a_planted_bug_that_keeps_a_new_namespace_undriven_is_detected(mutant: str) -> None:
    with planted(mutant):
        assert any(run_of_the_last_resort(seed).found for seed in range(LAST_RESORT_MUTANT_SEEDS))


@pytest.mark.parametrize(
    ("mutant", "fault", "cost"),
    [
        ("no hold", "lose everything", lambda outcome: outcome.changes),
        ("no damping", "pause five times", lambda outcome: outcome.changes),
        ("undriven shards are kept", "lose a release", lambda outcome: outcome.undriven_ms),
        ("lost claims are given up", "lose a claim", lambda outcome: outcome.undriven_ms),
        # The scripts do not compare what a member has seen: neither the rows that it removes, nor a fence.
        ("no comparison", "pause", lambda outcome: outcome.changes),
        ("no comparison", "delay a claim", lambda outcome: len(outcome.found)),
        ("fences are not compared", "pause", lambda outcome: len(outcome.found)),
        ("impatient", "join", lambda outcome: outcome.claims_over_members),
        ("claims again", "pause", lambda outcome: outcome.claims_over_members),
        # The member proposes itself while it waits to join again, and the others do not.
        ("rows are not needed", "pause five times", lambda outcome: outcome.calls_per_s),
    ],
)
def test_a_rule_that_is_left_out_costs_more(
    mutant: str, fault: str, cost: Callable[[scenarios.Outcome], float]
) -> None:
    def total(in_simulation: frozenset[str] = frozenset()) -> float:
        # Only a fenced driver with work claims again.
        has_load = mutant == "claims again"
        outcomes = (
            scenarios.run(fault, seed, shards=16, has_load=has_load, mutants=in_simulation) for seed in range(3)
        )
        return sum(map(cost, outcomes))

    right = total()
    with planted(mutant) as in_simulation:
        assert total(in_simulation) > right


class SlowWorld(World):
    """A world in which messages to and from the server take so much time that wakes often come during calls."""

    def _delay(self) -> float:
        return self.events.random.uniform(5, 30)


def test_a_wake_that_comes_during_a_call_is_kept() -> None:
    def hand_over_ms(seed: int) -> float:
        """Return the time from the start of a second process until the process has claimed its share."""
        world = SlowWorld(seed, ranks=[EVENT_PROCESS], shards=2, noise=0, has_load=False, end_ms=8_000)
        world.events.after(4_000, world.join)
        world.run()
        return min(time for time, _, _, holder in world.changes if holder == "p1") - 4_000

    kept = sum(map(hand_over_ms, range(30)))
    with planted("wakes get lost"):
        assert sum(map(hand_over_ms, range(30))) > 1.2 * kept


@pytest.mark.parametrize("seed", range(SUCCESSOR_SEEDS))
def test_a_successor_that_crashes_after_any_of_its_calls_is_followed_by_another_process(seed: int) -> None:
    ranks = (EVENT_PROCESS, EVENT_PROCESS, LAST_RESORT)
    changes: set[int] = set()
    for k in range(1, CALLS_OF_SUCCESSOR + 1):
        outcome = scenarios.run(scenarios.crash_of_successor(k), seed, shards=2, ranks=ranks)
        assert not outcome.found, f"call {k}"
        assert outcome.undriven_ms < 3 * LEASE_MS, f"call {k}"
        changes.add(outcome.changes)
    # The third process claims both shards, with and without a claim of the successor before.
    assert changes == {2, 3}


@pytest.mark.parametrize("shards", [1, 16])
@pytest.mark.parametrize("fault", ["kill", "clock back and kill", "pause", "hang"])
def test_a_shard_has_a_driver_again_soon_after_a_fault(fault: str, shards: int) -> None:
    for seed in range(3):
        outcome = scenarios.run(fault, seed, shards=shards)
        assert outcome.undriven_ms < 2 * LEASE_MS
        assert not outcome.found


@pytest.mark.parametrize(
    "fault",
    [
        *("nothing", "clock forward", "clock back", "freeze", "restart", "fail over", "lose everything"),
        "join last resort",
    ],
)
def test_no_shard_changes_hands_without_a_cause(fault: str) -> None:
    assert [scenarios.run(fault, seed, shards=16).changes for seed in range(3)] == [0, 0, 0]


@pytest.mark.parametrize("shards", [1, 16])
def test_the_leaders_drive_on_soon_after_a_failover(shards: int) -> None:
    for seed in range(3):
        outcome = scenarios.run("fail over", seed, shards=shards)
        assert outcome.undriven_ms < LEASE_MS
        assert not outcome.found


@pytest.mark.parametrize("shards", [1, 16])
def test_a_claim_that_a_failover_loses_is_made_again(shards: int) -> None:
    for seed in range(3):
        outcome = scenarios.run("lose a claim", seed, shards=shards)
        # The shards of the killed leader change hands once. The failover moves none of them back.
        assert outcome.changes == max(1, shards // 4)
        assert outcome.undriven_ms < 1.25 * LEASE_MS + 1_000
        assert not outcome.found


@pytest.mark.parametrize(
    ("fault", "shards", "changes"), [("end", 1, 1), ("end", 16, 4), ("join", 1, 0), ("join", 16, 3)]
)
def test_a_hand_over_moves_a_share_alone_and_leaves_no_shard_without_a_driver(
    fault: str, shards: int, changes: int
) -> None:
    for seed in range(3):
        outcome = scenarios.run(fault, seed, shards=shards)
        assert outcome.changes == changes
        assert outcome.undriven_ms < HAND_OVER_MS
        assert not outcome.found


def test_a_member_of_the_last_resort_drives_only_while_there_is_no_event_process() -> None:
    alone = scenarios.run("nothing", 1, ranks=(LAST_RESORT,))
    assert alone.changes == 0
    joined = scenarios.run("join", 1, ranks=(LAST_RESORT,))
    assert joined.changes == 4
    assert joined.undriven_ms < 100
    killed = scenarios.run("kill", 1, ranks=(EVENT_PROCESS, LAST_RESORT))
    assert killed.changes == 4
    assert killed.undriven_ms < 2 * LEASE_MS


def run_with_longer_lease() -> World:
    """Let an event process with a lease of a minute drive, and a process of the last resort with a short lease join."""
    world = World(1, ranks=[], shards=4, noise=0, has_load=False)
    world.events.after(10, world.join, EVENT_PROCESS, 60_000)
    world.events.after(500, world.join, LAST_RESORT, LEASE_MS)
    return world.run().check_end()


def test_a_child_of_the_last_resort_leaves_the_shards_of_an_event_process_with_a_longer_lease() -> None:
    world = run_with_longer_lease()
    assert len(world.changes) == 4
    assert not world.found
    with planted("leases of others are ignored"):
        assert len(run_with_longer_lease().changes) > 8


def test_the_shards_of_a_process_with_a_longer_lease_are_taken_over_after_this_lease() -> None:
    world = World(1, ranks=[], shards=4, noise=0, has_load=False, end_ms=60_000)
    world.events.after(10, world.join, EVENT_PROCESS, 8_000)
    world.events.after(500, world.join, LAST_RESORT, LEASE_MS)
    world.events.after(20_000, lambda: faults.kill(world, world.processes[0]))
    world.run().check_end()
    taken_over = [change[0] for change in world.changes if change[0] > 20_000]
    assert len(taken_over) == 4
    # The process had written its row up to a quarter of its lease before. Clocks differ by up to 1 %.
    assert min(taken_over) > 20_000 + 0.7 * 8_000
    assert max(taken_over) < 20_000 + 1.25 * 8_000
    assert not world.found


def first_claim(world: World) -> float:
    return min(change[0] for change in world.run().changes)


def test_a_child_of_the_last_resort_claims_a_new_namespace_after_a_time_and_event_processes_at_once() -> None:
    def new_world() -> World:
        return World(1, ranks=[LAST_RESORT], shards=4, noise=0, has_load=False, end_ms=30_000)

    # The clocks of processes differ by up to 1 %.
    assert 0.98 * UNCLAIMED_MS < first_claim(new_world()) < UNCLAIMED_MS + LEASE_MS
    later = new_world()
    later.events.after(UNCLAIMED_MS - 2_000, later.join, EVENT_PROCESS)
    later.run().check_end()
    assert {change[3] for change in later.changes} == {"p1"}
    assert max(change[0] for change in later.changes) < UNCLAIMED_MS
    with planted("new shards are not left"):
        assert first_claim(new_world()) < LEASE_MS


def test_fifty_candidates_make_at_most_sixty_calls_a_second() -> None:
    """The checks of the namespace are not simulated: their calls are added."""
    world = World(1, ranks=[LAST_RESORT] * 50, shards=16, noise=0, has_load=False, end_ms=40_000)
    before: dict[str, int] = {}
    world.events.after(30_000, lambda: before.update(world.calls))
    world.run()
    election = sum(world.calls[script] - before.get(script, 0) for script in scenarios.ELECTION_CALLS) / 10
    drivers = {process.name for process in world.processes if any(process.driving)}
    assert len(drivers) == 16
    # A check of a process of the last resort costs three calls (`find_obstacle`).
    obstacles = 3 * (16 / (CHECK_MS / 1000) + 34 / (STANDBY_CHECK_MS / 1000))
    assert election + 50 / LONG_INTERVAL_S + obstacles < 60


def test_the_election_wakes_an_idle_process_at_most_twice_a_second() -> None:
    world = World(1, ranks=[EVENT_PROCESS, LAST_RESORT], shards=64, noise=0, has_load=False, end_ms=50_000)
    before: list[int] = []
    world.events.after(30_000, lambda: before.extend(process.wake_ups for process in world.processes))
    world.run()
    assert sorted(sum(map(bool, process.driving)) for process in world.processes) == [0, 64]
    wake_ups = [process.wake_ups - first for process, first in zip(world.processes, before, strict=True)]
    assert max(wake_ups) / 20 <= 2


def test_two_hundred_processes_that_start_at_once_make_few_calls() -> None:
    world = World(1, ranks=[], shards=16, noise=0, has_load=False, end_ms=4_000)
    for _ in range(200):
        world.events.after(world.events.random.uniform(0, 2_000), world.join, LAST_RESORT)
    world.run()
    assert len(world.server.state.rows) == 200
    assert sum(world.calls[script] for script in scenarios.ELECTION_CALLS) < CALLS_OF_STARTS


def test_many_processes_hand_shards_over_within_a_second() -> None:
    world = World(1, ranks=[LAST_RESORT] * 100, shards=4, noise=0, has_load=False, end_ms=24_000)
    world.events.after(20_000, world.join, EVENT_PROCESS)
    world.events.after(22_000, lambda: faults.end(world, world.processes[-1]))
    world.run()
    joined = [change for change in world.changes if 20_000 < change[0] <= 22_000]
    ended = [change for change in world.changes if change[0] > 22_000]
    event_process = world.processes[-1].name
    assert {change[3] for change in joined} == {event_process}
    assert event_process not in {change[3] for change in ended}
    assert len(joined) == len(ended) == 4
    assert max(change[0] for change in joined) < 21_000
    assert max(change[0] for change in ended) < 23_000
