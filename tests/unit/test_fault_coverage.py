"""The coverage of the fault harness: three campaigns of a commit must reach 90 % of the rows."""

import json
import subprocess
from itertools import islice
from pathlib import Path

import pytest

from bench.harness.fault_campaigns import CAMPAIGNS, RESULTS
from tests.fault.harness.coverage import Coverage
from tests.fault.harness.plan import campaign
from tests.fault.harness.report import current_commit
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
    record(results, "abc", NAMES[5:7])
    assert Coverage.read(NAMES, results, "abc").campaigns == (frozenset(NAMES[:3]), frozenset(NAMES[5:7]))
    assert Coverage.read(NAMES, results, "abc").next_rows == [*NAMES[3:5], *NAMES[7:]]
    assert Coverage.read(NAMES, results, "abc-dirty").campaigns == ()


def test_campaigns_that_recorded_no_commit_count_for_no_commit() -> None:
    assert any("commit" not in json.loads(line) for line in RESULTS.read_text().splitlines())
    assert Coverage.read(NAMES, RESULTS, "abc").campaigns == ()


def test_only_changes_of_the_results_and_the_pages_leave_the_commit_as_it_is(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    assert current_commit(checkout=tmp_path) == ""
    results, code = tmp_path / "results" / "faults.jsonl", tmp_path / "code.py"
    code.write_text("1")
    git("init")
    git("add", ".")
    git("commit", "-m", "code")
    commit = current_commit(results, tmp_path)
    results.parent.mkdir()
    record(results, commit, NAMES)
    for path in (tmp_path / "docs" / "figures.md", tmp_path / "bench" / "results" / "bench.json"):
        path.parent.mkdir(parents=True)
        path.write_text("new")
    assert current_commit(results, tmp_path) == commit
    for path in (code, tmp_path / "new.py", results.parent / "other.jsonl"):
        before = path.read_text() if path.exists() else None
        path.write_text("2")
        assert current_commit(results, tmp_path) == f"{commit}-dirty"
        path.unlink() if before is None else path.write_text(before)
    assert current_commit(checkout=tmp_path) == f"{commit}-dirty"


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
