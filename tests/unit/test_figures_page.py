"""The documented measurements equal the recorded results."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bench.harness.fault_campaigns import MARK, PAGE, RESULTS as FAULTS, campaigns_table
from bench.harness.measurement import Measurement, Scale
from bench.harness.pages import SENTENCES, parts
from bench.harness.report import END, load, text_between
from bench.peers.__main__ import DOCUMENTS, RESULTS, comparison
from bench.registry import MEASUREMENTS, ROWS, measure, row_sources

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]


STORED = load(ROOT / "bench" / "results")
PARTS = parts(STORED, row_sources())


@pytest.mark.parametrize(("document", "mark", "text"), PARTS, ids=[mark.strip() for _, mark, _ in PARTS])
def test_every_part_of_a_page_with_measured_values_equals_the_results(document: Path, mark: str, text: str) -> None:
    assert text_between(document, mark) == text, "run `make bench ARGS=--table`"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_comparison_on_the_page_equals_the_results(document: Path) -> None:
    assert text_between(document) == comparison(json.loads(RESULTS.read_text())), "run `make bench ARGS=--table`"


def test_the_fault_campaigns_on_the_page_equal_the_results() -> None:
    assert text_between(PAGE, MARK) == campaigns_table(FAULTS), "run `make bench ARGS=--table`"


def test_no_other_sentence_of_the_readme_has_a_measured_value() -> None:
    text = page("README.md").partition("## Measurements")[2].partition("## Comparison")[0]
    before, _, rest = text.partition(SENTENCES)
    assert re.findall(r"\d", before + rest.partition(END)[2]) == []


def test_no_note_has_a_measured_value() -> None:
    notes = page("docs/figures.md").partition("## Notes")[2].partition("### Faults")[0]
    # The settings of the measurements, and the values that Netflix published.
    settings = {"2 s", "4 s", "10 ms", "85 ms", "100 times"}
    numbers = re.findall(r"\d[\d,.]*\s(?:µs|ms|s|%|×|bytes|times|`PING`|`ZADD`)(?!\w)", notes)
    assert {" ".join(number.split()) for number in numbers} - settings == set()


def test_the_page_names_every_row_that_has_not_been_measured() -> None:
    figures = load(ROOT / "bench" / "results")["figures"]
    not_measured = [f"`{name}`" for name in row_sources() if name not in figures]
    marked = [line.split(" | ")[0] for line in page("docs/figures.md").splitlines() if "not measured yet" in line]
    assert marked == [f"| {name}" for name in not_measured]


def test_every_result_belongs_to_a_row_of_the_measurements() -> None:
    assert load(ROOT / "bench" / "results")["figures"].keys() - row_sources().keys() == set()
    assert ROWS.keys() - MEASUREMENTS.keys() == set()


def test_a_measurement_that_returns_other_rows_than_it_lists_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Measurement("backlog", "", "", [1], None)
    monkeypatch.setitem(MEASUREMENTS, "backlog", lambda _: [row])
    assert measure("backlog", Scale()) == [row]
    monkeypatch.setitem(ROWS, "backlog", ("backlog", "other"))
    assert measure("backlog", Scale(quick=True)) == [row]
    with pytest.raises(RuntimeError, match=r"backlog returned the rows backlog, and ROWS .* has backlog, other"):
        measure("backlog", Scale())


def test_the_results_come_from_a_full_run_and_state_whether_each_goal_is_reached() -> None:
    results = load(ROOT / "bench" / "results")
    assert not results["quick"]
    for name, figure in results["figures"].items():
        if figure["bar"] is not None:
            reached = (
                figure["value"] >= figure["bar"] if figure["bar_is"] == "at least" else figure["value"] <= figure["bar"]
            )
            assert figure["passed"] is reached, name


def test_the_page_marks_exactly_the_goals_that_the_results_miss() -> None:
    figures = load(ROOT / "bench" / "results")["figures"].values()
    missed = [figure["what"] for figure in figures if figure["passed"] is False]
    marked = [
        line.split(" | ")[0].removeprefix("| ") for line in page("docs/figures.md").splitlines() if "**missed**" in line
    ]
    assert marked == missed


def page(name: str) -> str:
    return (ROOT / name).read_text()


def details(name: str) -> Any:
    return load(ROOT / "bench" / "results")["figures"][name]["details"]


def test_the_rows_that_hold_for_a_chosen_size_name_the_size() -> None:
    figures = load(ROOT / "bench" / "results")["figures"]
    for name in ("memory", "pairs", "cancelled_retained", "cancelled_gone"):
        sizes = details(name)["messages"]
        assert f"{sizes[0]:,} to {sizes[-1]:,}" in figures[name]["what"]
    for name, figure in figures.items():
        # Rows without a commit are results of older code, which did not name the batch.
        if (batch := figure["details"].get("batch")) and "commit" in figure:
            assert re.search(rf"\b{batch}\b", figure["what"]), name
    for name in ("life_4_shards", "life_64_shards"):
        batch = details("life_4_shards")["messages_to_a_shards_call"]
        assert figures[name]["what"].endswith(f"with {batch} messages in each shard's call")
    load_of_timestone = details("timestone_share")
    calls = load_of_timestone["dequeue_calls_per_s"] / load_of_timestone["enqueues_per_s"]
    for name in ("timestone_share", "timestone_direct_share"):
        assert f"with {calls:g} dequeue calls (each for ten messages) for each message" in figures[name]["what"]
