"""The results as a file and as a table."""

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.harness.measurement import Figure

FILE = "bench.json"
# Around a table in a document that is made of results.
BEGIN, END = "<!-- begin: made by python -m bench -->\n", "<!-- end -->"


def load(folder: Path) -> dict[str, Any]:
    """The results of earlier runs, empty where there are none."""
    path = folder / FILE
    return dict(json.loads(path.read_text())) if path.exists() else {}


def save(folder: Path, figures: list[Figure], quick: bool, server: dict[str, str]) -> dict[str, Any]:
    """Add figures to the results, in place of older ones of the same names; all there are now."""
    folder.mkdir(parents=True, exist_ok=True)
    measured = datetime.now(UTC).isoformat(timespec="seconds")
    known = {} if quick else load(folder).get("figures", {})
    known |= {figure.name: figure.as_json() | {"measured": measured} for figure in figures}
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


def table(figures: list[Figure], quick: bool) -> Table:
    """What was measured against what was promised."""
    made = Table(title="Benchmarks", title_justify="left")
    made.add_column("figure", overflow="fold")
    made.add_column("measured", justify="right")
    made.add_column("bar", justify="right")
    made.add_column("runs", justify="right")
    made.add_column("")
    for figure in figures:
        bar = "reported" if figure.bar is None else f"{'≥' if figure.at_least else '≤'} {figure.bar:,} {figure.unit}"
        verdict = {True: "[green]pass[/]", False: "[red]miss[/]", None: ""}[None if quick else figure.passed]
        made.add_row(figure.what, f"{_shown(figure.value)} {figure.unit}", bar, str(figure.runs), verdict)
    return made


def markdown(results: dict[str, Any]) -> str:
    """The same of all results, with the spread of the samples."""
    lines = ["| what | measured | samples | goal |", "|---|---|---|---|"]
    for figure in results["figures"].values():
        unit, samples = figure["unit"], figure["samples"]
        goal = "reported"
        if figure["bar"] is not None:
            goal = f"{'≥' if figure['bar_is'] == 'at least' else '≤'} {_shown(figure['bar'])}"
        missed = ", **missed**" if figure["passed"] is False else ""
        spread = f"{_shown(min(samples))} – {_shown(max(samples))}"
        lines.append(f"| {figure['what']} | {_shown(figure['value'])} {unit} | {spread} | {goal}{missed} |")
    return "\n".join(lines) + "\n"


def between(document: Path, text: str) -> None:
    """Put a text between the marks of a document."""
    before, _, rest = document.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    document.write_text(f"{before}{BEGIN}{text}{END}{after}")


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def show(figures: list[Figure], quick: bool) -> None:
    """Print the table; a quick run is not judged."""
    Console().print(table(figures, quick))
