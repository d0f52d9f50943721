"""Progress bar and result tables of `tickwheel load`. The bar is displayed only on a terminal."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tickwheel.cli.tables import print_table
from tickwheel.runtime.text_escape import escape_unprintable

if TYPE_CHECKING:
    from tickwheel.load.run.run import Progress as RunProgress

_CALLS = ("count", "p50_ms", "p95_ms", "p99_ms", "max_ms")


class View:
    """A view without output: for JSON, and if standard error is not a terminal."""

    def show_run(self, progress: "RunProgress") -> None: ...
    def show_hour(self, hour: int) -> None: ...


class Bar(View):
    """A progress bar on standard error, because standard output is reserved for the report."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._run = bar.add_task("enqueued", total=None, summary="")

    def show_run(self, progress: "RunProgress") -> None:
        counts = progress.counts
        summary = "  ".join(
            f"{name} {counts.get(name, 0):,}" for name in ("delivered", "completed", "cancelled") if counts.get(name)
        )
        self._bar.update(self._run, total=progress.planned or 1, completed=progress.sent, summary=summary)

    def show_hour(self, hour: int) -> None:
        self._bar.update(self._run, description="workers needed", total=24, completed=hour % 24, summary="")


@contextmanager
def open_view(*, json: bool) -> Iterator[View]:
    """Yield a progress bar if standard error is a terminal and ``json`` is off, otherwise a view without output."""
    if json or not sys.stderr.isatty():
        yield View()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(
        *columns, TextColumn("{task.fields[summary]}"), console=Console(stderr=True), transient=True
    ) as progress:
        yield Bar(progress)


def print_report(document: Mapping[str, Any]) -> None:
    """Print the main tables of the report. The HTML page has all tables."""
    run, capacity = document["run"], document["capacity"]
    if run is not None:
        print(f"{run['counts'].get('enqueued', 0):,} messages in {run['seconds']:.1f} s; ended because {run['ended']}")
        rows = [(name, *(_format_number(entry[key]) for key in _CALLS)) for name, entry in run["calls"].items()]
        print_table(
            ("call", *(name.replace("_", " ") for name in _CALLS)), rows, right=[n.replace("_", " ") for n in _CALLS]
        )
        columns = ("queue", "wait p50 s", "wait p95 s", "start p95 s", "lateness p99 ms")
        print_table(columns, [_queue_row(name, entry) for name, entry in run["queues"].items()], right=columns[1:])
        for kind, error in run["errors"].items():
            print(escape_unprintable(f"errors: {error['count']} {kind}: {error['first']}"))
        for text in run["troubles"]:
            print(escape_unprintable(f"problem: {text}"))
        if run["harness"]["was_the_bottleneck"]:
            print(f"the load generator itself was the bottleneck: {'; '.join(run['harness']['why'])}")
    if not capacity["hours"]:
        print("workers needed: not computed, because the run was interrupted (--simulate-only computes only this)")
        return
    targets = ", ".join(f"{name} within {wait:g} s" for name, wait in capacity["wait_targets_s"].items())
    print(
        f"workers needed, so that {100 * capacity['share']:g} % of the messages of every queue start in time"
        f" ({targets}); scale {capacity['scale']:g}; the scenario has {capacity['workers_now']} workers:"
    )
    hours = ("hour", "due/s", "busy", "workers", "utilisation", "longest wait s")
    print_table(hours, [_hour_row(entry) for entry in capacity["hours"]], right=hours)
    for entry in capacity["agreement"]:
        print(
            f"{entry['queue']}: {100 * entry['share']:g} % of the messages started within {entry['measured_s']:g} s in"
            f" the run, and within {entry['simulated_s']:g} s in the simulation"
        )


def _queue_row(name: str, queue: Mapping[str, Any]) -> tuple[object, ...]:
    waits, starts = queue["wait_s"], queue["start_s"]
    return (
        name,
        _format_number(waits["p50"]),
        _format_number(waits["p95"]),
        _format_number(starts["p95"]),
        queue["lateness_ms"]["p99"],
    )


def _hour_row(entry: Mapping[str, Any]) -> tuple[object, ...]:
    # None: no number of workers meets the target.
    workers = "no number" if entry["workers"] is None else entry["workers"]
    longest = max(entry["waits_s"].values(), default=0.0)
    hour = f"{entry['hour']:02d}:00"
    return (
        hour,
        f"{entry['due_per_s']:.3g}",
        f"{entry['busy']:.3g}",
        workers,
        f"{entry['utilisation']:.0%}",
        _format_number(longest),
    )


def _format_number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
