"""Tables for people. Colours and line wrapping are used only on a terminal.

Only the modules that print tables import this module, because its library takes 40 ms to import.
"""

import sys
from collections.abc import Iterable, Sequence
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tickwheel.runtime.text_escape import escape_unprintable

# A text in a table may be folded to this width.
_FOLDED_CHARS: Final = 24


def console() -> Console:
    """Return the console of standard output. Lines are not wrapped unless the output is a terminal."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 10_000)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()) -> None:
    """Print a table with a header. The columns named in ``right`` are aligned to the right, for numbers.

    If the table does not fit the terminal, the cells of each row are printed below each other.
    """
    cells = [[_to_text(cell) for cell in row] for row in rows]
    if sys.stdout.isatty() and _min_width(columns, cells, right) > console().width:
        for first, *others in cells:
            fields = zip(columns[1:], others, strict=True)
            print_fields(((f"  {name}", text) for name, text in fields if text.plain), title=first.plain)
        return
    table = Table(box=box.SIMPLE_HEAD if sys.stdout.isatty() else None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in cells:
        table.add_row(*row)
    _print(table)


def _min_width(columns: Sequence[str], cells: Iterable[Sequence[Text]], right: Sequence[str]) -> int:
    """Return the width of a table whose texts are folded, and whose numbers are not."""
    widths = [len(column) for column in columns]
    for row in cells:
        for number, text in enumerate(row):
            folded = len(text.plain) if columns[number] in right else min(len(text.plain), _FOLDED_CHARS)
            widths[number] = max(widths[number], folded)
    return sum(widths) + 2 * (len(columns) - 1)


def _to_text(cell: object) -> Text:
    if isinstance(cell, Text):
        return cell
    return Text(f"{cell:,}" if isinstance(cell, int) else escape_unprintable(str(cell)))


def print_fields(fields: Iterable[tuple[str, object]], title: str | None = None) -> None:
    """Print one line for each field: its name and its value. Fields without a value are left out."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in fields:
        if value not in (None, "", {}):
            table.add_row(name, value if isinstance(value, Text) else Text(escape_unprintable(str(value))))
    if title is not None:
        print(escape_unprintable(title))
    _print(table)


def _print(table: Table) -> None:
    out = console()
    if out.is_terminal:
        out.print(table)
        return
    # Strip the spaces that pad lines to the table's width.
    with out.capture() as captured:
        out.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))
