"""The exit code of `python -m tests.fault.harness`, with runs that take no time."""

import json
import logging
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import tests.fault.harness.__main__ as program
from tests.fault.harness.deployment import RowUnavailable
from tests.fault.harness.plan import RunPlan
from tests.fault.harness.run import Outcome
from tests.fault.harness.run_evidence import Violation

pytestmark = pytest.mark.unit

NAMES = [f"F{n}" for n in (1, 2, 4, 5, 6, 7, 8, 9, 10, 11)]


class FakeCampaigns:
    """Campaigns that reach the rows of ``reached``, one list for each campaign. ``ends`` has the ends of some runs."""

    def __init__(self, *reached: list[str], ends: dict[str, Any] | None = None) -> None:
        self.count = len(reached)
        self._reached = iter(reached)
        self._ends = ends or {}
        self.runs: list[str] = []

    def plan(self, seed: int, rows: Sequence[str], preferred: Collection[str] = ()) -> Iterator[tuple[str, int]]:
        return iter([(row, seed) for row in next(self._reached)])

    def run(self, plan: RunPlan, *_: object, **__: object) -> Outcome:
        self.runs.append(plan.row)
        end = self._ends.get(plan.row)
        if isinstance(end, Exception):
            raise end
        return Outcome(plan, messages=10, faults=1, **(end or {}))


@pytest.fixture(autouse=True)
def level_of_the_log() -> Iterator[None]:
    """Restore the level that the program sets."""
    log = logging.getLogger("tickwheel")
    level = log.level
    yield
    log.setLevel(level)


@pytest.fixture
def exit_code(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("TICKWHEEL_SOAK", raising=False)

    def call(campaigns: FakeCampaigns, *arguments: str) -> int:
        monkeypatch.setattr(program, "campaign", campaigns.plan)
        monkeypatch.setattr(program, "run", campaigns.run)
        monkeypatch.setattr(sys, "argv", ["harness", "--rows", ",".join(NAMES), *arguments])
        return program.main()

    return call


VOID, VIOLATION = {"void": ["no mark"]}, {"violations": [Violation("I1", "lost")]}


@pytest.mark.parametrize(
    ("campaigns", "code"),
    [
        (FakeCampaigns(NAMES), 0),
        (FakeCampaigns(NAMES[:2]), 0),
        (FakeCampaigns([]), 1),
        (FakeCampaigns(NAMES, ends={"F2": VIOLATION}), 1),
        (FakeCampaigns(NAMES, ends={"F2": VOID}), 1),
        (FakeCampaigns(NAMES, ends={"F2": RowUnavailable("no disk")}), 0),
        (FakeCampaigns(NAMES, NAMES, NAMES), 0),
        (FakeCampaigns(NAMES[:4], NAMES[4:6], NAMES[6:9]), 0),
        (FakeCampaigns(NAMES[:4], NAMES[4:6], NAMES[6:8]), 1),
        (FakeCampaigns([*NAMES, "F12"], NAMES, NAMES, ends={"F12": VIOLATION}), 1),
    ],
    ids=[
        "all rows",
        "few rows of one campaign",
        "no row",
        "a violation",
        "a void run",
        "a row that cannot run",
        "three campaigns",
        "90 % in three campaigns",
        "80 % in three campaigns",
        "a violation in the first campaign",
    ],
)
def test_the_exit_code_is_1_if_a_run_failed_or_three_campaigns_reached_too_few_rows(
    exit_code: Any, campaigns: FakeCampaigns, code: int
) -> None:
    assert exit_code(campaigns, "--seeds", str(campaigns.count)) == code


def test_the_campaigns_of_earlier_calls_count_for_the_exit_code(
    exit_code: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "current_commit", lambda _: "abc")
    results = tmp_path / "faults.jsonl"
    results.write_text("".join(json.dumps({"commit": "abc", "rows": {"F1": {}}}) + "\n" for _ in range(2)))
    assert exit_code(FakeCampaigns(NAMES[:4]), "--results", str(results)) == 1
    assert exit_code(FakeCampaigns(NAMES), "--results", str(results)) == 0


@pytest.mark.parametrize(
    ("reached", "ends", "code"),
    [
        (NAMES, {}, 0),
        (NAMES[:9], {}, 1),
        (NAMES, {"F11": RowUnavailable("no disk")}, 0),
    ],
    ids=["all rows", "a row is missing", "a row cannot run"],
)
def test_a_soak_must_reach_every_row_that_can_run(
    exit_code: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    reached: list[str],
    ends: dict[str, Any],
    code: int,
) -> None:
    monkeypatch.setenv("TICKWHEEL_SOAK", "1")
    assert exit_code(FakeCampaigns(reached, ends=ends)) == code
    named = "not reached in the time, and a soak must reach all rows: F11" in capsys.readouterr().out
    assert named == (code == 1)


@pytest.mark.parametrize(("ends", "code"), [({}, 0), ({"F8": VIOLATION}, 1), ({"F8": VOID}, 1)])
def test_a_replay_runs_one_row_and_its_exit_code_is_that_of_the_run(
    exit_code: Any, ends: dict[str, Any], code: int
) -> None:
    campaigns = FakeCampaigns(ends=ends)
    assert exit_code(campaigns, "--replay", "F8:1") == code
    assert campaigns.runs == ["F8"]


def test_an_unknown_row_is_a_usage_error(exit_code: Any) -> None:
    with pytest.raises(SystemExit) as error:
        exit_code(FakeCampaigns(), "--rows", "F999")
    assert error.value.code == 2


def test_a_campaign_writes_the_page_only_if_its_results_are_those_of_the_page(
    exit_code: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    monkeypatch.setattr(program, "RESULTS", tmp_path / "faults.jsonl")
    monkeypatch.setattr(
        program, "write_campaigns", lambda: written.append(len((tmp_path / "faults.jsonl").read_text()))
    )
    exit_code(FakeCampaigns(NAMES), "--results", str(tmp_path / "other.jsonl"))
    assert written == []
    exit_code(FakeCampaigns(NAMES, NAMES), "--seeds", "2", "--results", str(tmp_path / "faults.jsonl"))
    assert len(set(written)) == 2
