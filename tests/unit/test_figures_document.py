"""The documented figures are those that were measured."""

from pathlib import Path

import pytest

from bench.report import BEGIN, END, load, markdown

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]


def test_the_table_is_that_of_the_results() -> None:
    document = (ROOT / "docs" / "figures.md").read_text()
    table = document.partition(BEGIN)[2].partition(END)[0]
    assert table == markdown(load(ROOT / "bench" / "results"))


def test_the_results_are_of_a_full_run_and_no_row_is_missing() -> None:
    results = load(ROOT / "bench" / "results")
    assert not results["quick"]
    with_goals = [name for name, figure in results["figures"].items() if figure["bar"] is not None]
    assert len(with_goals) == 18
