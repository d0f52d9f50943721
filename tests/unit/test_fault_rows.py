"""The plans of the rows of the fault table, and the order of rows in a campaign."""

from itertools import pairwise

import pytest

from tests.fault.harness.faults import KINDS
from tests.fault.harness.plan import campaign
from tests.fault.harness.rows import ROWS, plan

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("row", "minimum", "maximum"),
    [("F2", 6, 20), ("F2L", 5, 20), ("F9", 0.1, 10), ("F33", 0.1, 10), ("F35", 6, 8), ("F5", 30, 30)],
)
def test_a_fault_lasts_as_long_as_its_row_defines(row: str, minimum: float, maximum: float) -> None:
    lasts = [fault.lasts for seed in range(500) for fault in plan(row, seed).faults]
    assert min(lasts) >= minimum
    assert max(lasts) <= maximum
    assert max(lasts) >= maximum - 0.2
    assert min(lasts) <= minimum + 0.2


def test_kafka_is_unreachable_for_a_minute_in_a_campaign_and_for_ten_in_a_soak() -> None:
    assert [fault.lasts for seed in range(20) for fault in plan("F21", seed).faults] == [60.0] * 20
    assert [fault.lasts for seed in range(20) for fault in plan("F21", seed, soak=True).faults] == [600.0] * 20


def test_a_campaign_starts_with_the_outage_of_kafka_and_runs_all_rows_in_turn() -> None:
    for seed in range(10):
        runs = campaign(seed, list(ROWS))
        first = [next(runs)[0] for _ in ROWS]
        assert first[0] == "F21"
        assert sorted(first) == sorted(ROWS)
        assert sorted(next(runs)[0] for _ in ROWS) == sorted(ROWS)


@pytest.mark.parametrize("row", ["F20", "F20E", "F36"])
@pytest.mark.parametrize("seed", range(20))
def test_the_clock_steps_both_ways_one_after_the_other(row: str, seed: int) -> None:
    first, second = plan(row, seed).faults
    assert {first.amount, second.amount} == {1.0, -1.0}
    assert first.at + first.lasts + 2 < second.at
    assert second.at + second.lasts < ROWS[row].seconds


def test_two_simultaneous_faults_cover_all_compatible_kinds_and_have_different_targets() -> None:
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


def test_event_processes_of_an_election_by_lease_are_killed_paused_and_cut_off_one_after_the_other() -> None:
    orders = set()
    for seed in range(100):
        faults = plan("F31", seed).faults
        orders.add(tuple(fault.kind for fault in faults))
        assert {fault.kind for fault in faults} == {"kill_driver", "pause_driver", "cut_off_from_server"}
        assert all(fault.lasts >= 6 for fault in faults if fault.kind != "kill_driver")
        ends = [fault.at + max(fault.lasts, ROWS["F31"].recovers_s) for fault in faults]
        assert all(end + 3 < following.at for end, following in zip(ends, faults[1:], strict=False))
        assert ends[-1] + 3 < ROWS["F31"].seconds
    assert len(orders) == 6


@pytest.mark.parametrize(("by_lease", "other"), [("F32", "F8"), ("F33", "F9"), ("F34", "F11"), ("F36", "F20")])
def test_a_row_of_an_election_by_lease_has_the_limits_of_the_same_faults_with_lock_files(
    by_lease: str, other: str
) -> None:
    row, same = ROWS[by_lease], ROWS[other]
    assert (row.by_lease, same.by_lease) == (True, False)
    for name in ("recovers_s", "late_max_ms", "place", "faked"):
        assert getattr(row, name) == getattr(same, name)
    assert [fault.kind for fault in plan(by_lease, 1).faults] == [fault.kind for fault in plan(other, 1).faults]


@pytest.mark.parametrize("seed", range(20))
def test_event_processes_are_stopped_one_after_the_other(seed: int) -> None:
    faults = plan("F37", seed).faults
    assert [(fault.kind, fault.whom) for fault in faults] == [("stop_driver", n) for n in range(4)]
    # The process that replaces the stopped one has a share again meanwhile.
    assert all(fault.at + 5 < following.at for fault, following in pairwise(faults))
    assert faults[-1].at + ROWS["F37"].recovers_s < ROWS["F37"].seconds


def test_workers_that_drive_are_killed_and_stopped_in_any_order() -> None:
    orders = set()
    for seed in range(100):
        faults = plan("F38", seed).faults
        orders.add(tuple(fault.kind for fault in faults))
        assert {fault.kind for fault in faults} == {"kill_program", "kill_driver", "stop_driver"}
        ends = [fault.at + ROWS["F38"].recovers_s for fault in faults]
        # A worker and its child process start slowly.
        assert all(end + 7 < following.at for end, following in zip(ends, faults[1:], strict=False))
        assert ends[-1] + 3 < ROWS["F38"].seconds
    assert len(orders) == 6


def test_every_fault_of_a_row_has_a_known_kind() -> None:
    assert {fault.kind for row in ROWS for fault in plan(row, 1).faults} <= set(KINDS)
