"""Display of the day: a live board on a terminal, plain lines elsewhere, and the table at the end."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tickwheel.demo.checks import Spread, Verdict
from tickwheel.demo.flight_board import FlightBoard, percentile
from tickwheel.runtime.text_escape import escape_unprintable
from tickwheel.storage.record import State

_STYLES = {"departed": "cyan", "landed": "green", "cancelled": "yellow"}
_BAR_FLIGHTS = 40
# The interval between two plain lines, in minutes of the simulated day.
_LINE_MINUTES = 60


class View:
    """Displays the progress of the day. This base class has no output, for programs that need only the verdict."""

    def print_line(self, text: str) -> None:
        """Print a permanent line."""

    def show(self, board: FlightBoard, now_ms: int) -> None:
        """Display the current state."""


class PlainLines(View):
    """Prints a line for every hour of the day, without colour."""

    def __init__(self) -> None:
        self._last_stage = (-1, False)

    def print_line(self, text: str) -> None:
        print(escape_unprintable(text), flush=True)

    def show(self, board: FlightBoard, now_ms: int) -> None:
        stage = (board.timetable.minute(now_ms) // _LINE_MINUTES, board.complete)
        if stage == self._last_stage:
            return
        self._last_stage = stage
        counts = "  ".join(f"{name} {count:>4}" for name, count in _counts(board))
        late = (
            f"  late p50 {_ms(percentile(board.taken_late_ms, 0.5))}, p99 {_ms(percentile(board.taken_late_ms, 0.99))}"
        )
        print(f"{board.timetable.clock(now_ms)}  {counts}{late if board.taken_late_ms else ''}", flush=True)


class LiveBoard(View):
    """A board on a terminal, redrawn ten times a second."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def print_line(self, text: str) -> None:
        self._live.console.print(Text(escape_unprintable(text), style="dim"))

    def show(self, board: FlightBoard, now_ms: int) -> None:
        self._live.update(_render(board, now_ms), refresh=True)


@contextmanager
def open_view(*, json: bool) -> Iterator[View]:
    """Yield a view without output for JSON, a board for a terminal, and plain lines for other outputs."""
    if json:
        yield View()
    elif sys.stdout.isatty():
        with Live(console=Console(highlight=False), auto_refresh=False) as live:
            yield LiveBoard(live)
    else:
        yield PlainLines()


def print_verdict(verdict: Verdict) -> None:
    """Print the table of checks."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 200)
    table = Table(box=box.SIMPLE_HEAD if sys.stdout.isatty() else None, pad_edge=False)
    for column in ("", "claim", "measured"):
        table.add_column(column, overflow="fold")
    for check in verdict.checks:
        mark = Text("holds", style="green") if check.holds else Text("FAILS", style="bold red")
        table.add_row(mark, Text(check.claim), Text(check.evidence))
    for name, spread in (("from due to deliverable", verdict.ready_late), ("from due to flying", verdict.taken_late)):
        table.add_row("", Text(name), Text(_spread(spread)))
    console.print(table)
    failed = sum(not check.holds for check in verdict.checks)
    text = f"{failed} of {len(verdict.checks)} checks fail" if failed else f"all {len(verdict.checks)} checks hold"
    console.print(Text(text, style="bold red" if failed else "bold green"))


def _render(board: FlightBoard, now_ms: int) -> RenderableType:
    total = len(board.timetable.departures)
    # The bar is in a grid, because a bar alone does not end its line.
    bar = Table.grid(expand=True)
    bar.add_row(ProgressBar(total=total, completed=board.finished))
    counts = Table.grid(padding=(0, 3))
    counts.add_row(*(Text.assemble((f"{count:>4} ", "bold"), (name, "dim")) for name, count in _counts(board)))
    workers = Table.grid(padding=(0, 2))
    for name in sorted(board.airborne | board.landed):
        flying = board.airborne[name]
        row = (name, "✈" * min(flying, _BAR_FLIGHTS), f"{flying} in the air", f"{board.landed[name]} landed")
        workers.add_row(*map(Text, row))
    recent = Table.grid(padding=(0, 2))
    for event, departure, pilot in reversed(board.recent):
        flight = departure.flight
        route = f"{flight.origin} → {flight.destination}"
        recent.add_row(
            Text(event, style=_STYLES[event]), *map(Text, (flight.name, route, flight.aircraft or "", pilot))
        )
    late = Text(
        f"late, from due to flying: p50 {_ms(percentile(board.taken_late_ms, 0.5))},"
        f" p99 {_ms(percentile(board.taken_late_ms, 0.99))}",
        style="dim",
    )
    clock = Text(f"{board.timetable.clock(now_ms)} in New York", style="bold")
    return Group(clock, bar, counts, late, workers, recent)


def _counts(board: FlightBoard) -> list[tuple[str, int]]:
    return [
        ("scheduled", board.count(State.INVISIBLE)),
        ("waiting", board.count(State.PENDING)),
        ("in the air", board.count(State.RUNNING)),
        ("landed", board.count(State.COMPLETED)),
        ("cancelled", board.count(State.CANCELLED)),
    ]


def _spread(spread: Spread) -> str:
    return f"p50 {_ms(spread.p50)}, p99 {_ms(spread.p99)}, at most {_ms(spread.worst)}"


def _ms(value: int | None) -> str:
    return "-" if value is None else f"{value} ms"
