"""The outcome of a run of a row: effects that the row does not allow are violations; a run without effect is void."""

from collections.abc import Iterator

import pytest

from tests.fault.harness.faults import Injection
from tests.fault.harness.load import Load
from tests.fault.harness.rows import plan
from tests.fault.harness.run import Outcome, measure
from tests.fault.harness.run_evidence import Evidence
from tickwheel.storage.record import State
from tickwheel.storage.transition import OutboxTransition

pytestmark = pytest.mark.unit

BEGAN_MS = 1_000_000


def promoted(due_ms: int, late_ms: int) -> OutboxTransition:
    at_ms = BEGAN_MS + due_ms + late_ms
    return OutboxTransition(1, "m", None, 1, 2, State.INVISIBLE, State.PENDING, at_ms, 0, 0, lateness_ms=late_ms)


def in_time_for(seconds: int) -> Iterator[OutboxTransition]:
    return (promoted(due_ms, 20) for due_ms in range(0, seconds * 1_000, 100))


def outcome_of(
    row: str,
    *transitions: OutboxTransition,
    epochs: tuple[int, ...] = (1, 1),
    mark: str = "seen",
    unfinished: dict[str, int] | None = None,
) -> Outcome:
    """Return the outcome of a run of the row whose first fault was active from the start."""
    outcome = Outcome(plan(row, 1))
    fault = outcome.plan.faults[0]
    injection = Injection(fault, 0.0, fault.lasts, BEGAN_MS, BEGAN_MS, [1, 1], mark)
    fences = [[(1, 1), (epoch, 2)] for epoch in epochs]
    evidence = Evidence(Load(1, 1), [], [list(transitions)], {}, {}, fences, unfinished=unfinished or {})
    measure(outcome, evidence, [injection])
    return outcome


def invariants(outcome: Outcome) -> list[str]:
    return [violation.invariant for violation in outcome.violations]


@pytest.mark.parametrize("row", ["F1", "F5", "F24"])
def test_a_run_with_all_messages_on_time_has_no_violation(row: str) -> None:
    outcome = outcome_of(row, *in_time_for(30))
    assert (outcome.violations, outcome.void, outcome.recoveries_s) == ([], [], [0.0])


def test_a_process_that_stops_some_time_after_the_quorum_was_lost_is_noticed() -> None:
    stopped = (promoted(due_ms, 31_000 - due_ms) for due_ms in range(12_000, 30_000, 100))
    assert invariants(outcome_of("F5", *in_time_for(12), *stopped)) == ["L1"]


def test_a_late_successor_is_noticed() -> None:
    delayed = (promoted(due_ms, 9_000 - due_ms) for due_ms in range(0, 9_000, 100))
    assert invariants(outcome_of("F1", *delayed, promoted(9_500, 0))) == ["L2"]


def test_a_missing_successor_is_noticed() -> None:
    waits = OutboxTransition(
        1, "n", None, 1, 1, None, State.INVISIBLE, BEGAN_MS, BEGAN_MS + 500, 0, due_ms=BEGAN_MS + 500
    )
    outcome = outcome_of("F1", *in_time_for(3), waits)
    assert (invariants(outcome), outcome.recoveries_s) == (["L2"], [])


def test_a_leader_deposed_because_of_busy_processors_is_noticed() -> None:
    assert invariants(outcome_of("F24", *in_time_for(3), epochs=(1, 2))) == ["L3"]
    assert invariants(outcome_of("F1", *in_time_for(3), epochs=(1, 2))) == []


@pytest.mark.parametrize(("late", "violations"), [(2, []), (3, ["L1"])])
def test_more_than_one_late_message_in_a_hundred_is_noticed_if_the_row_has_a_limit(
    late: int, violations: list[str]
) -> None:
    # Late messages, but within the limit that ends a recovery.
    some = (promoted(10_000 + n, 1_900) for n in range(late))
    outcome = outcome_of("F20D", *in_time_for(20), *some)
    assert (invariants(outcome), outcome.lateness_ms["max"]) == (violations, 1_900)


@pytest.mark.parametrize("row", ["F1", "F20D"])
def test_messages_that_have_not_ended_are_noticed_and_reported(row: str) -> None:
    outcome = outcome_of(row, *in_time_for(3), unfinished={"running": 2})
    assert invariants(outcome) == ["L2"]
    assert "{'running': 2}" in outcome.violations[0].text


def test_a_fault_without_a_mark_makes_the_run_void() -> None:
    assert len(outcome_of("F5", *in_time_for(3), mark="").void) == 1
