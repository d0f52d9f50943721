"""The results as a file and as a table."""

import json
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.harness.measurement import Measurement

FILE = "bench.json"
# The marks around a generated table in a document.
BEGIN, END = "<!-- begin: made by python -m bench -->\n", "<!-- end -->"


def load(folder: Path) -> dict[str, Any]:
    """Return the results of earlier runs, or an empty dictionary."""
    path = folder / FILE
    return dict(json.loads(path.read_text())) if path.exists() else {}


def save(folder: Path, figures: dict[str, dict[str, Any]], quick: bool, server: dict[str, str]) -> dict[str, Any]:
    """Add rows to the stored results, replace older rows of the same names, and return all results.

    If ``quick``, replace all stored results.
    """
    folder.mkdir(parents=True, exist_ok=True)
    known = {} if quick else load(folder).get("figures", {})
    known |= figures
    results = {
        "machine": {
            "cpus": os.cpu_count(),
            "system": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
        },
        "server": server,
        "quick": quick,
        "figures": known,
    }
    (folder / FILE).write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    return results


def table(measurements: list[Measurement], quick: bool) -> Table:
    """Return a table of the measured values and their goals."""
    rich_table = Table(title="Benchmarks", title_justify="left")
    rich_table.add_column("measurement", overflow="fold")
    rich_table.add_column("measured", justify="right")
    rich_table.add_column("goal", justify="right")
    rich_table.add_column("runs", justify="right")
    rich_table.add_column("")
    for measurement in measurements:
        bar = (
            "none"
            if measurement.bar is None
            else f"{'≥' if measurement.at_least else '≤'} {measurement.bar:,} {measurement.unit}"
        )
        verdict = {True: "[green]pass[/]", False: "[red]miss[/]", None: ""}[None if quick else measurement.passed]
        rich_table.add_row(
            measurement.label,
            f"{format_value(measurement.value)} {measurement.unit}",
            bar,
            str(measurement.runs),
            verdict,
        )
    return rich_table


def markdown(results: dict[str, Any], rows: Iterable[str]) -> str:
    """Return a Markdown table of all results, with the number and the spread of their runs.

    ``rows`` has the names of all rows. A row without a result is in the table, too.
    """
    lines = ["| measurement | measured | runs | lowest – highest | goal |", "|---|---|---|---|---|"]
    for measurement in results["figures"].values():
        unit, samples = measurement["unit"], measurement["samples"]
        goal = "none"
        if measurement["bar"] is not None:
            goal = f"{'≥' if measurement['bar_is'] == 'at least' else '≤'} {format_value(measurement['bar'])}"
        missed = ", **missed**" if measurement["passed"] is False else ""
        spread = f"{format_value(min(samples))} – {format_value(max(samples))}"
        lines.append(
            f"| {measurement['what']} | {format_value(measurement['value'])} {unit} | {len(samples)} | {spread} |"
            f" {goal}{missed} |"
        )
    lines += [f"| `{name}` | not measured yet | 0 | | |" for name in rows if name not in results["figures"]]
    return "\n".join(lines) + "\n"


def replace_between(document: Path, text: str, begin: str = BEGIN) -> None:
    """Replace the text between the mark ``begin`` of a document and the next `END`."""
    before, mark, rest = document.read_text().partition(begin)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"{document} has no part between {begin.strip()} and {END.strip()}: restore both marks")
    document.write_text(f"{before}{begin}{text}{END}{after}")


def text_between(document: Path, begin: str = BEGIN) -> str:
    """Return the text between the mark ``begin`` of a document and the next `END`."""
    return document.read_text().partition(begin)[2].partition(END)[0]


def format_value(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def show(measurements: list[Measurement], quick: bool) -> None:
    """Print the table. A quick run has no verdicts."""
    Console().print(table(measurements, quick))
