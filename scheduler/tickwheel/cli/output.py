"""Output: JSON for programs, tables for people. Colours and line wrapping are used only on a terminal."""

import base64
import json
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tickwheel.model.results import Lateness
from tickwheel.runtime.log_format import print_error, print_line
from tickwheel.runtime.text_escape import escape_unprintable

# A text in a table may be folded to this width.
_FOLDED_CHARS: Final = 24
_is_json: ContextVar[bool] = ContextVar("json", default=False)


def print_json(value: object) -> None:
    """Print one document on one line. Times are ISO 8601 in UTC, to the millisecond."""
    print(json.dumps(value, default=_to_json_value))


def use_json(json: bool) -> None:
    """Set whether the lines of this command on stderr are JSON documents."""
    _is_json.set(json)


def is_json() -> bool:
    """Return whether the lines of this command on stderr are JSON documents."""
    return _is_json.get()


def print_status(text: str) -> None:
    """Print a line about the command on stderr, so that programs that read stdout do not see it."""
    print_line(text, json=_is_json.get())


@contextmanager
def print_warnings() -> Iterator[None]:
    """Print the warnings about stored data on stderr during the ``with`` block. Short commands print no other log."""
    handler, log = _WarningPrinter(logging.WARNING), logging.getLogger("tickwheel.operations")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


class _WarningPrinter(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print_status(f"Warning: {record.getMessage()}")


def print_failure(error: Exception) -> None:
    """Print the error that ends the command on stderr."""
    print_error(error, json=_is_json.get())


def format_moment(at: datetime) -> str:
    """Format a time for people, in UTC."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d} UTC"


def payload_fields(payload: bytes) -> dict[str, str]:
    """Return a payload as JSON fields: text if it is UTF-8, else base64. `enqueue --from` reads the same fields."""
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode()}


def lateness_fields(late: Lateness) -> dict[str, object]:
    """Return the histogram of lateness, and estimates of two percentiles, as JSON fields."""
    return {"p50": late.percentile(0.5), "p99": late.percentile(0.99), "buckets": late.promoted}


def format_lateness(late: Lateness) -> list[str]:
    """Format estimates of the 50th and the 99th percentile for people."""
    estimates = [late.percentile(share) if late.promoted else None for share in (0.5, 0.99)]
    return ["" if estimate is None else f"{estimate:,} ms" if estimate else "< 1 ms" for estimate in estimates]


def format_payload(payload: bytes) -> str:
    """Format a payload for people: its text, or its bytes as a Python literal."""
    try:
        return escape_unprintable(payload.decode())
    except UnicodeDecodeError:
        return repr(payload)


def format_count(count: int, noun: str) -> str:
    """Format a number of things for people. ``noun`` is the singular of a noun with a regular plural."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_pairs(pairs: Mapping[str, str]) -> str:
    return " ".join(escape_unprintable(f"{key}={value}") for key, value in pairs.items())


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


def _to_json_value(value: object) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds")
    raise TypeError(f"{type(value).__name__} has no JSON form")
