"""The texts that the results of benchmarks and fault campaigns determine: new results change every value in them."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from bench.harness.fault_campaigns import MARK, campaigns_table, write_campaigns
from bench.harness.further_values import further_values
from bench.harness.readme import readme_measurements
from bench.harness.report import BEGIN, END, load, replace_between, text_between
from bench.harness.source_files import ROOT
from bench.peers.__main__ import RESULTS, comparison

pytestmark = pytest.mark.unit

Figures = dict[str, dict[str, Any]]


@pytest.fixture
def figures() -> Figures:
    """A copy of the recorded rows."""
    return copy.deepcopy(load(ROOT / "bench" / "results")["figures"])


def campaign(commit: str | None, rows: list[str], missing: list[str], **total: Any) -> dict[str, Any]:
    totals = {"runs": 1, "messages": 1_000, "faults": 2, "void": 0, "violations": {}} | total
    line = {"at": "2026-01-02T03:04:05+00:00", "seed": 7, "total": totals, "rows": {row: {} for row in rows}}
    return line if commit is None else line | {"commit": commit, "left_out": {}, "not_reached": missing}


def write(results: Path, *campaigns: dict[str, Any]) -> Path:
    results.write_text("".join(json.dumps(campaign) + "\n" for campaign in campaigns))
    return results


def test_the_table_of_the_campaigns_has_a_line_for_each_and_their_sums(tmp_path: Path) -> None:
    results = write(
        tmp_path / "faults.jsonl",
        campaign(None, ["F1"], []),
        campaign("abc", ["F1"], ["F2"], violations={"I1": 1}, void=3),
        campaign("abc", ["F1", "F2"], [], messages=500, violations={"I1": 2, "L1": 1}) | {"soak": True},
    )
    assert campaigns_table(results).splitlines()[2:6] == [
        "| campaign of 2026-01-02 | 7 | not recorded | not recorded | 1 | 1,000 | 2 | 0 | none |",
        "| campaign of 2026-01-02 | 7 | abc | 1 of 2 | 1 | 1,000 | 2 | 3 | 1 of I1 |",
        "| soak of 2026-01-02 | 7 | abc | 2 of 2 | 1 | 500 | 2 | 0 | 2 of I1, 1 of L1 |",
        "| all 3, one of them a soak | | | | 3 | 2,500 | 6 | 3 | 3 of I1, 1 of L1 |",
    ]


@pytest.mark.parametrize(
    ("commits", "sentence"),
    [
        ([None], "The code of the latest campaign was not committed, so the coverage of that code is not known."),
        (
            ["a", "a-dirty"],
            "The code of the latest campaign was not committed, so the coverage of that code is not known.",
        ),
        (["b", "a"], "The latest campaign of the commit a reached 1 of 5 planned rows."),
        (["a", "b", "a"], "The latest 2 campaigns of the commit a reached 2 of 5 planned rows."),
        (["a", "a", "a", "a"], "The latest 3 campaigns of the commit a reached 3 of 5 planned rows."),
    ],
)
def test_the_page_has_the_coverage_of_the_latest_commit(
    tmp_path: Path, commits: list[str | None], sentence: str
) -> None:
    names = [f"F{n}" for n in range(5)]
    lines = [
        campaign(commit, [names[n]], [name for name in names if name != names[n]]) for n, commit in enumerate(commits)
    ]
    assert campaigns_table(write(tmp_path / "faults.jsonl", *lines)).splitlines()[-1] == sentence


def test_only_the_part_of_a_page_between_its_marks_is_written(tmp_path: Path) -> None:
    document = tmp_path / "figures.md"
    document.write_text(f"a\n{BEGIN}old\n{END}\nb\n{MARK}old\n{END}\nc\n")
    results = write(tmp_path / "faults.jsonl", campaign("abc", ["F1"], []))
    write_campaigns(results, document)
    assert document.read_text() == f"a\n{BEGIN}old\n{END}\nb\n{MARK}{campaigns_table(results)}{END}\nc\n"
    assert text_between(document) == "old\n"


def test_a_page_without_the_marks_is_not_changed(tmp_path: Path) -> None:
    document = tmp_path / "figures.md"
    for text in ("a\n", f"a\n{BEGIN}"):
        document.write_text(text)
        with pytest.raises(ValueError, match="restore both marks"):
            replace_between(document, "new")
        assert document.read_text() == text


def test_the_runs_of_timestone_that_met_both_goals_are_counted(figures: Figures) -> None:
    figures["timestone_enqueue"] |= {"samples": [1, 25, 26, 1], "bar": 25}
    figures["timestone_dequeue"] |= {"samples": [1, 45, 1, 46], "bar": 45}
    assert "met the goals of both latencies | 2 of 4 |" in further_values(figures)


def test_the_dates_and_the_unknown_code_of_the_rows_are_named(figures: Figures) -> None:
    recorded = {"measured": "2027-01-01T00:00:00+00:00", "commit": "abc", "dirty": False}
    for row in figures.values():
        row |= recorded
    assert further_values(figures).splitlines()[-1] == "The rows were measured on 2027-01-01."
    figures["life"] |= {"measured": "2026-12-31T00:00:00+00:00", "dirty": True}
    del figures["relay"]["commit"]
    assert further_values(figures).splitlines()[-1] == (
        "The rows were measured from 2026-12-31 to 2027-01-01."
        f" The commit of 1 of the {len(figures)} rows was not recorded."
        f" The code of 1 of the {len(figures)} rows had changes that were not committed."
    )


def test_the_further_values_leave_out_rows_that_have_not_been_measured(figures: Figures) -> None:
    only = {"relay": figures["relay"]}
    labels = [line.split(" | ")[0] for line in further_values(only).splitlines()[2:-2]]
    assert labels == [
        "| CPU time of the relay for a transition, enqueued in calls of 100",
        "| server CPU time for a `ZADD`, in all measurements that record it",
    ]


def test_every_measured_number_of_the_readme_changes_with_the_results(figures: Figures) -> None:
    numbers = re.compile(r"\d[\d,.]*\d|\d")
    before = numbers.findall(readme_measurements(figures))
    for row in figures.values():
        row["value"] *= 3
        row["samples"] = [sample * 3 for sample in row["samples"]]
    figures["memory"]["details"]["dearest"] *= 3
    after = numbers.findall(readme_measurements(figures))
    # These are the sizes of the measurements, the rates of Timestone and its goals.
    settings = {"100", "200", "100,000", "30,000", "3,000,000", "1,200", "25", "45", "99"}
    same = {old for old, new in zip(before, after, strict=True) if old == new}
    assert same - settings == set()


def test_the_comparison_names_its_date_and_the_versions_that_were_measured() -> None:
    stored = json.loads(RESULTS.read_text()) | {"measured": "2027-01-01T00:00:00+00:00", "commit": "abc"}
    stored["versions"]["BullMQ"] = "0.0.1"
    text = comparison(stored)
    assert text.endswith("\nMeasured on 2027-01-01: the values are medians of 3 runs.\n")
    assert "| BullMQ 0.0.1 |" in text
    del stored["commit"]
    assert "an older version of Tickwheel" in comparison(stored)
