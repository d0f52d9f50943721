"""What the rows of the fault harness plan, and what they allow: a run that proves nothing of its row does not pass."""

from collections.abc import Iterator

import pytest

from tests.fault.harness.evidence import Evidence
from tests.fault.harness.faults import KINDS, Injection
from tests.fault.harness.load import Load
from tests.fault.harness.rows import ROWS, plan
from tests.fault.harness.run import Outcome, measure
from tickwheel.record import State
from tickwheel.transitions import Transition

BEGAN_MS = 1_000_000


def promoted(due_ms: int, late_ms: int) -> Transition:
    at_ms = BEGAN_MS + due_ms + late_ms
    return Transition(1, "m", None, 1, 2, State.INVISIBLE, State.PENDING, at_ms, 0, 0, lateness_ms=late_ms)


def in_time_for(seconds: int) -> Iterator[Transition]:
    return (promoted(due_ms, 20) for due_ms in range(0, seconds * 1_000, 100))


def found(row: str, *transitions: Transition, epochs: tuple[int, ...] = (1, 1), mark: str = "seen") -> Outcome:
    """Of a run of the row with its first fault, which was there from the beginning on."""
    outcome = Outcome(plan(row, 1))
    fault = outcome.plan.faults[0]
    injection = Injection(fault, 0.0, fault.lasts, BEGAN_MS, BEGAN_MS, [1, 1], mark)
    fences = [[(1, 1), (epoch, 2)] for epoch in epochs]
    measure(outcome, Evidence(Load(1, 1), [], [list(transitions)], {}, {}, fences), [injection])
    return outcome


def invariants(outcome: Outcome) -> list[str]:
    return [violation.invariant for violation in outcome.violations]


@pytest.mark.parametrize("row", ["F1", "F5", "F24"])
def test_a_run_in_which_all_is_in_time_has_no_violation(row: str) -> None:
    outcome = found(row, *in_time_for(30))
    assert (outcome.violations, outcome.void, outcome.recoveries_s) == ([], [], [0.0])


def test_who_stops_some_time_after_the_quorum_was_lost_is_noticed() -> None:
    stopped = (promoted(due_ms, 31_000 - due_ms) for due_ms in range(12_000, 30_000, 100))
    assert invariants(found("F5", *in_time_for(12), *stopped)) == ["L1", "L2"]


def test_who_follows_too_late_is_noticed() -> None:
    away = (promoted(due_ms, 9_000 - due_ms) for due_ms in range(0, 9_000, 100))
    assert invariants(found("F1", *away, promoted(9_500, 0))) == ["L2"]


def test_who_never_follows_is_noticed() -> None:
    waits = Transition(1, "n", None, 1, 1, None, State.INVISIBLE, BEGAN_MS, BEGAN_MS + 500, 0, due_ms=BEGAN_MS + 500)
    outcome = found("F1", *in_time_for(3), waits)
    assert (invariants(outcome), outcome.recoveries_s) == (["L2"], [])


def test_that_busy_processors_depose_who_drives_is_noticed() -> None:
    assert invariants(found("F24", *in_time_for(3), epochs=(1, 2))) == ["L3"]
    assert invariants(found("F1", *in_time_for(3), epochs=(1, 2))) == []


def test_a_fault_without_a_mark_makes_the_run_void() -> None:
    assert len(found("F5", *in_time_for(3), mark="").void) == 1


@pytest.mark.parametrize("row", ["F20", "F20E"])
@pytest.mark.parametrize("seed", range(20))
def test_the_clock_steps_both_ways_one_after_the_other(row: str, seed: int) -> None:
    first, second = plan(row, seed).faults
    assert {first.amount, second.amount} == {1.0, -1.0}
    assert first.at + first.lasts + 2 < second.at
    assert second.at + second.lasts < ROWS[row].seconds


def test_two_faults_at_once_are_of_all_kinds_that_fit_and_done_to_different_things() -> None:
    pairs = [plan("F29", seed).faults for seed in range(1_000)]
    kinds = {fault.kind for pair in pairs for fault in pair}
    assert kinds <= set(KINDS)
    assert kinds >= {"kill_driver", "pause_driver", "stall_drivers", "stop_server", "limit_memory", "stop_worker"}
    of_drivers = {"kill_driver", "stop_driver", "pause_driver", "stall_drivers"}
    of_server = {"kill_server", "stop_server", "pause_server", "limit_memory"}
    for first, second in pairs:
        for same in (of_drivers, of_server):
            assert not {first.kind, second.kind} <= same
        assert 0 <= second.at - first.at <= 0.8


def test_every_fault_of_a_row_is_of_a_kind_that_there_is() -> None:
    assert {fault.kind for row in ROWS for fault in plan(row, 1).faults} <= set(KINDS)
