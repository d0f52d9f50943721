"""The documented measurements equal the recorded results."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from bench.harness.measurement import Measurement, Scale
from bench.harness.report import BEGIN, END, load, markdown
from bench.peers.__main__ import DOCUMENTS, RESULTS, table
from bench.registry import MEASUREMENTS, ROWS, measure, row_sources

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]


def test_the_table_on_the_page_equals_the_results() -> None:
    document = (ROOT / "docs" / "figures.md").read_text()
    table_of_page = document.partition(BEGIN)[2].partition(END)[0]
    assert table_of_page == markdown(load(ROOT / "bench" / "results"), row_sources()), "run `make bench ARGS=--table`"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_comparison_on_the_page_equals_the_results(document: Path) -> None:
    table_of_page = document.read_text().partition(BEGIN)[2].partition(END)[0]
    assert table_of_page == table(json.loads(RESULTS.read_text())["results"])


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


def value(name: str, digits: int, *, share: float = 1) -> str:
    """Return the recorded value of a row, as a text rounds it to ``digits`` significant digits."""
    number = load(ROOT / "bench" / "results")["figures"][name]["value"] * share
    rounded = round(number, digits - 1 - math.floor(math.log10(abs(number))))
    return f"{rounded:,.0f}" if rounded >= 100 or rounded == int(rounded) else f"{rounded:g}"


def details(name: str) -> Any:
    return load(ROOT / "bench" / "results")["figures"][name]["details"]


def test_every_measured_value_in_the_readme_is_recorded() -> None:
    text = " ".join(page("README.md").partition("## Measurements")[2].partition("## Comparison")[0].split())
    samples = load(ROOT / "bench" / "results")["figures"]["timestone_share"]["samples"]
    sentences = [
        f"One client enqueues {value('client_enqueue', 2)} messages a second",
        f"dequeues and completes {value('client_finish', 2)} a second",
        f"takes {value('memory', 2)} bytes of the server's memory, and {details('memory')['dearest']:.0f} bytes"
        " immediately after a hash table of the server has doubled its size",
        f"its timer takes {value('cancelled_gone', 2)} bytes until the due time",
        f"a dequeue costs {value('blocked', 2)} times as much",
        f"at most {value('handover', 2)} ms late",
        f"another one takes over in {value('takeover_first', 2, share=0.001)} s",
        f"calls succeed again after {value('failover', 2, share=0.001)} s",
        f"publishes {value('relay', 2)} state changes a second",
        f"handles {value('service_enqueue', 2)} single enqueues a second",
        f"or {value('service_batch', 2)} messages a second in batches",
        f"receives the message {value('service_wake_p50', 2)} ms (median)",
        f"sustains {value('timestone_share', 2)} % of this load; the slowest run sustained {min(samples):g} %, the"
        f" fastest {max(samples):g} %",
        f"A worker adds {value('worker_overhead', 2)} µs to the run time of a task",
        f"it runs {value('worker_against_celery', 2)} times as many tasks a second as Celery, and"
        f" {value('worker_against_dramatiq', 2)} times as many as dramatiq",
    ]
    assert [sentence for sentence in sentences if sentence not in text] == []
    # A number that no sentence above has was written by hand. The numbers of the settings and of Timestone follow.
    settings = {"100", "200", "100,000", "30,000", "3,000,000", "1,200", "25", "45", "99"}
    numbers = set(re.findall(r"\d[\d,.]*\d|\d", text))
    assert numbers - settings - set(re.findall(r"\d[\d,.]*\d|\d", " ".join(sentences))) == set()


def test_the_notes_on_the_empty_dequeue_have_the_recorded_costs() -> None:
    text = " ".join(page("docs/figures.md").split())
    walks = details("empty")["two_pairs_that_never_meet_in_1000_messages_us"]
    first = details("empty")["first_after_a_message"]
    assert f"calls the script and costs {first:.1f} `PING`" in text
    assert (
        f"{walks['plain'] / 1000:.1f} ms for 1,000 messages, and {walks['exclusive'] / 1000:.1f} ms on an exclusive"
        in text
    )


def test_the_notes_on_memory_have_the_highest_values_of_the_measured_sizes() -> None:
    text = " ".join(page("docs/figures.md").split())
    message, pair, cancelled = (details(name)["dearest"] for name in ("memory", "pairs", "cancelled_retained"))
    assert f"doubling, a delayed message takes {message:.0f} bytes, a metadata pair takes {pair:.0f} bytes" in text
    assert f"takes {cancelled:.0f} bytes during its retention" in text


def test_the_rows_that_hold_for_a_chosen_size_name_the_size() -> None:
    figures = load(ROOT / "bench" / "results")["figures"]
    for name in ("memory", "pairs", "cancelled_retained", "cancelled_gone"):
        sizes = details(name)["messages"]
        assert f"{sizes[0]:,} to {sizes[-1]:,}" in figures[name]["what"]
    for name in ("life_4_shards", "life_64_shards"):
        batch = details("life_4_shards")["messages_to_a_shards_call"]
        assert figures[name]["what"].endswith(f"with {batch} messages in each shard's call")
    load_of_timestone = details("timestone_share")
    calls = load_of_timestone["dequeue_calls_per_s"] / load_of_timestone["enqueues_per_s"]
    for name in ("timestone_share", "timestone_direct_share"):
        assert f"with {calls:g} dequeue calls (each for ten messages) for each message" in figures[name]["what"]


def test_the_notes_on_the_timing_wheel_have_the_recorded_ratios() -> None:
    text = " ".join(page("docs/figures.md").split())
    assert f"takes {value('timing_wheel', 3)} times as much CPU time" in text
    assert f"then takes {value('timing_wheel_same_rate', 3)} times as much CPU time" in text


def test_the_notes_on_timestone_list_the_runs_of_the_table() -> None:
    figures = load(ROOT / "bench" / "results")["figures"]
    text = " ".join(page("docs/figures.md").split())
    *most, last = sorted(round(sample) for sample in figures["timestone_enqueue"]["samples"])
    assert f"enqueues was {', '.join(map(str, most))} and {last} ms in the five runs of the table" in text
    samples = figures["timestone_share"]["samples"]
    assert f"is between {min(samples):g} and {max(samples):g} % of the published rates" in text
