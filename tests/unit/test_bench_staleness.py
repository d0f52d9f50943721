"""`python -m bench --stale` lists the rows that are older than the code that they measure."""

import pytest

from bench.harness.staleness import stale_rows

pytestmark = pytest.mark.unit


def test_a_row_is_stale_if_its_code_changed_after_the_measurement() -> None:
    commits = {("monday", "scheduler"): 3, ("monday", "wheel"): 0, ("tuesday", "scheduler"): 0}
    figures = {
        name: {"measured": day} for name, day in (("life", "monday"), ("timing_wheel", "monday"), ("empty", "tuesday"))
    }
    assert stale_rows(figures, lambda since, folders: commits[since, folders[0]]) == [("life", "monday", 3)]
