"""The coverage of the fault harness: three campaigns of a commit must reach 90 % of the rows."""

import json
from itertools import islice
from pathlib import Path

import pytest

from tests.fault.harness.coverage import CAMPAIGNS, Coverage
from tests.fault.harness.plan import campaign
from tests.fault.harness.rows import ROWS

pytestmark = pytest.mark.unit

NAMES = [f"F{n}" for n in range(10)]


def record(results: Path, commit: str, rows: list[str]) -> None:
    with results.open("a") as file:
        file.write(json.dumps({"commit": commit, "rows": {row: {} for row in rows}}) + "\n")


@pytest.mark.parametrize(
    ("campaigns", "passed", "missing"),
    [
        ([NAMES[:2]], True, NAMES[2:]),
        ([NAMES[:2], NAMES[:2]], True, NAMES[2:]),
        ([NAMES[:4], NAMES[4:6], NAMES[6:9]], True, ["F9"]),
        ([NAMES[:4], NAMES[4:6], NAMES[6:8]], False, ["F8", "F9"]),
        ([NAMES, NAMES[:2], NAMES[:2], NAMES[:2]], False, NAMES[2:]),
    ],
    ids=["one", "two", "90 %", "80 %", "an older campaign"],
)
def test_three_campaigns_must_reach_90_percent_of_the_rows(
    campaigns: list[list[str]], passed: bool, missing: list[str]
) -> None:
    coverage = Coverage(NAMES)
    for rows in campaigns:
        coverage = coverage.with_campaign(rows)
    assert coverage.passed is passed
    assert coverage.not_reached() == missing
    assert coverage.describe().endswith(f"not reached: {', '.join(missing)}")


def test_only_campaigns_of_the_same_commit_count(tmp_path: Path) -> None:
    results = tmp_path / "faults.jsonl"
    assert Coverage.read(NAMES, results, "abc").campaigns == ()
    record(results, "abc", NAMES[:3])
    record(results, "old", NAMES)
    record(results, "abc-dirty", NAMES[3:5])
    assert Coverage.read(NAMES, results, "abc").campaigns == (frozenset(NAMES[:3]), frozenset(NAMES[3:5]))
    assert Coverage.read(NAMES, results, "abc").next_rows == NAMES[5:]


def test_a_campaign_begins_with_the_rows_that_were_not_reached() -> None:
    missing = ["F8", "F13", "R"]
    rows = [row for row, _ in islice(campaign(7, list(ROWS), missing), len(ROWS))]
    assert rows[0] == "F21"
    assert sorted(rows[1:4]) == sorted(missing)
    assert sorted(rows) == sorted(ROWS)


def test_three_campaigns_of_18_runs_reach_every_row() -> None:
    for seed in range(20):
        coverage = Coverage(list(ROWS))
        for n in range(CAMPAIGNS):
            runs = campaign(seed + n, list(ROWS), coverage.next_rows)
            coverage = coverage.with_campaign(row for row, _ in islice(runs, 18))
        assert coverage.not_reached() == []
        assert coverage.passed
