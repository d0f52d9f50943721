"""The documented measurements equal the recorded results."""

import json
from pathlib import Path

import pytest

from bench.harness.report import BEGIN, END, load, markdown
from bench.peers.__main__ import DOCUMENTS, RESULTS, table

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]


def test_the_table_on_the_page_equals_the_results() -> None:
    document = (ROOT / "docs" / "figures.md").read_text()
    table_of_page = document.partition(BEGIN)[2].partition(END)[0]
    assert table_of_page == markdown(load(ROOT / "bench" / "results"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_comparison_on_the_page_equals_the_results(document: Path) -> None:
    table_of_page = document.read_text().partition(BEGIN)[2].partition(END)[0]
    assert table_of_page == table(json.loads(RESULTS.read_text())["results"])


def test_the_results_come_from_a_full_run_and_no_row_is_missing() -> None:
    results = load(ROOT / "bench" / "results")
    assert not results["quick"]
    with_goals = [name for name, figure in results["figures"].items() if figure["bar"] is not None]
    assert len(with_goals) == 39
    assert {"life_4_shards", "life_64_shards"} <= set(with_goals)
    # This goal is missed at the full rates; the page states the share of the rates at which it is met.
    assert [name for name in with_goals if not results["figures"][name]["passed"]] == ["timestone_enqueue"]
    assert results["figures"]["timestone_share"]["passed"]
