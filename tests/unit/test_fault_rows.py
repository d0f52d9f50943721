"""What the rows of the table of faults plan: as much as they say, and in a campaign what must be in it."""

import pytest

from tests.fault.harness.plan import campaign
from tests.fault.harness.rows import ROWS, plan

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("row", "least", "most"), [("F2", 6, 20), ("F2L", 5, 20), ("F9", 0.1, 10), ("F5", 30, 30)])
def test_a_fault_lasts_as_long_as_its_row_says(row: str, least: float, most: float) -> None:
    lasts = [fault.lasts for seed in range(500) for fault in plan(row, seed).faults]
    assert min(lasts) >= least
    assert max(lasts) <= most
    assert max(lasts) >= most - 0.2
    assert min(lasts) <= least + 0.2


def test_kafka_is_away_for_a_minute_in_a_campaign_and_for_ten_in_a_soak() -> None:
    assert [fault.lasts for seed in range(20) for fault in plan("F21", seed).faults] == [60.0] * 20
    assert [fault.lasts for seed in range(20) for fault in plan("F21", seed, soak=True).faults] == [600.0] * 20


def test_a_campaign_begins_with_kafka_away_and_goes_on_with_all_rows_in_turn() -> None:
    for seed in range(10):
        runs = campaign(seed, list(ROWS))
        first = [next(runs)[0] for _ in ROWS]
        assert first[0] == "F21"
        assert sorted(first) == sorted(ROWS)
        assert sorted(next(runs)[0] for _ in ROWS) == sorted(ROWS)
