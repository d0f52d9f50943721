"""Runs the steps of a removal, and shows its progress. The bar is displayed only on a terminal."""

import sys
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tickwheel.client.backend import Remover
from tickwheel.plan import Plan


def remove_all(
    remover: Remover, run: Callable[[Plan[Any]], Any], noun: str, *, total: int | None = None, json: bool
) -> int:
    """Run the steps until the end, and return the number of things that they removed.

    If standard error is a terminal and ``json`` is off, a bar shows this number. ``noun`` is the plural of the things.
    ``total`` is their number, if it is known.
    """
    columns = (TextColumn(f"{{task.completed:,}} {noun} removed"), BarColumn(), TimeElapsedColumn())
    is_hidden = json or not sys.stderr.isatty()
    removed = 0
    with Progress(*columns, console=Console(stderr=True), disable=is_hidden, transient=True) as bar:
        task = bar.add_task("", total=total)
        while not remover.ended:
            count = run(remover.next())
            removed += count
            bar.advance(task, count)
    return removed
