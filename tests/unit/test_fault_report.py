"""The report of a campaign: a campaign passes only if its runs prove something; the report names omitted rows."""

import json
from pathlib import Path

import pytest

from tests.fault.harness.report import Report
from tests.fault.harness.rows import plan
from tests.fault.harness.run import Outcome
from tests.fault.harness.run_evidence import Violation

pytestmark = pytest.mark.unit


def outcome(row: str, *, void: bool = False, violated: bool = False) -> Outcome:
    return Outcome(
        plan(row, 1),
        messages=100,
        faults=2,
        recoveries_s=[9.0 if void else 1.0],
        lateness_ms={"max": 900 if void else 10},
        void=["kill_driver at 1 s"] if void else [],
        violations=[Violation("I1", "lost")] if violated else [],
    )


def report(*outcomes: Outcome) -> Report:
    return Report(1, ["F1", "F8", "F17"], list(outcomes))


@pytest.mark.parametrize(
    ("outcomes", "passed"),
    [
        ([], False),
        ([outcome("F1")], True),
        ([outcome("F1"), outcome("F8", void=True)], False),
        ([outcome("F1"), outcome("F8", violated=True)], False),
    ],
)
def test_a_campaign_passes_if_no_run_was_void_or_had_a_violation(outcomes: list[Outcome], passed: bool) -> None:
    assert report(*outcomes).passed is passed


def test_a_void_run_adds_only_itself_and_its_violations_to_the_totals() -> None:
    totals = report(outcome("F1"), outcome("F1", void=True, violated=True)).rows()["F1"]
    assert totals == {
        "runs": 2,
        "messages": 100,
        "faults": 2,
        "void": 1,
        "recovery_p50_s": 1.0,
        "recovery_max_s": 1.0,
        "lateness_max_ms": 10,
        "violations": {"I1": 1},
    }


def test_omitted_rows_and_rows_not_reached_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    campaign = report(outcome("F1"))
    campaign.add_unavailable("F17", "no disk")
    capsys.readouterr()
    campaign.show()
    campaign.append(tmp_path / "faults.jsonl")

    output, line = capsys.readouterr().out, json.loads((tmp_path / "faults.jsonl").read_text())
    assert "F17 was left out: no disk" in output
    assert "not reached in the time: F8" in output
    assert line["soak"] is False
    assert (line["left_out"], line["not_reached"]) == ({"F17": "no disk"}, ["F8"])
