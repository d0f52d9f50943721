"""The parts of the pages with measured values. They are made from the results, so nobody edits a value by hand."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from bench.harness.further_values import further_values
from bench.harness.readme import readme_measurements
from bench.harness.report import BEGIN, markdown, replace_between
from bench.harness.source_files import ROOT

FIGURES: Final = ROOT / "docs" / "figures.md"
README: Final = ROOT / "README.md"
FURTHER_VALUES: Final = "<!-- begin: further values, made by python -m bench -->\n"
SENTENCES: Final = "<!-- begin: sentences, made by python -m bench -->\n"


def parts(results: dict[str, Any], rows: Iterable[str]) -> list[tuple[Path, str, str]]:
    """Return each part that the results of the benchmarks determine: its page, the mark before the part, its text."""
    figures = results["figures"]
    return [
        (FIGURES, BEGIN, markdown(results, rows)),
        (FIGURES, FURTHER_VALUES, further_values(figures)),
        (README, SENTENCES, readme_measurements(figures)),
    ]


def write_pages(results: dict[str, Any], rows: Iterable[str]) -> None:
    """Write all parts into their pages."""
    for page, mark, text in parts(results, rows):
        replace_between(page, text, mark)
