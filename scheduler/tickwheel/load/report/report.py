"""The report of a load: one JSON document, and an HTML page with plots that needs no other file."""

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

import tickwheel
from tickwheel.load.capacity.advice import Advice
from tickwheel.load.report import document
from tickwheel.load.report.plots import draw_plots
from tickwheel.load.run.run_result import RunResult

_PAGE = "report.html.jinja"


def build_document(outcome: RunResult | None, advice: Advice) -> dict[str, Any]:
    """Return the document of a run, or of a simulation alone."""
    scenario = advice.scenario if outcome is None else outcome.scenario
    return {
        "tickwheel": tickwheel.__version__,
        "scenario": document.scenario_document(scenario),
        "run": None if outcome is None else document.run_document(outcome),
        "capacity": document.advice_document(advice),
    }


def render_page(report_document: Mapping[str, Any]) -> str:
    """Return the document as an HTML page."""
    return load_template().render(**report_document, plots=list(draw_plots(dict(report_document))))


def load_template() -> Template:
    """Return the template of the page. It escapes all values as text."""
    environment = Environment(
        loader=PackageLoader(__package__ or "", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"ms": _milliseconds, "s": _seconds, "count": _count, "percent": _percent}
    return environment.get_template(_PAGE)


def _count(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _milliseconds(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:,.3f}" if value < 10 else f"{value:,.1f}"


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"
