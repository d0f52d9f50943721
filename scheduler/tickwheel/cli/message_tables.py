"""Times and states of messages in tables for people: short on a terminal, so that a table fits 80 columns.

If the output is not a terminal, times are complete and nothing is coloured, because another program may read the table.
"""

import sys
from datetime import UTC, datetime, timedelta

from rich.text import Text

from tickwheel.cli.output import format_moment

_STYLES = {
    "invisible": "dim",
    "pending": "cyan",
    "running": "yellow",
    "completed": "green",
    "cancelled": "dim",
    "errored": "bold red",
}
_UNITS = (("d", timedelta(days=1)), ("h", timedelta(hours=1)), ("m", timedelta(minutes=1)), ("s", timedelta(seconds=1)))
_SECOND = timedelta(seconds=1)


def format_state(state: str) -> Text | str:
    """Return the state, coloured on a terminal."""
    return Text(state, style=_STYLES.get(state, "")) if sys.stdout.isatty() else state


def format_time(at: datetime, now: datetime | None = None) -> str:
    """Return a time relative to now if the output is a terminal, such as "in 14m"; otherwise the time itself."""
    return format_relative(at, datetime.now(UTC) if now is None else now) if sys.stdout.isatty() else format_moment(at)


def format_relative(at: datetime, now: datetime) -> str:
    """Return a time relative to ``now`` with its two largest units: "in 2h5m", "3d4h ago"; "now" within a second."""
    distance = at - now
    rest = abs(distance)
    parts: list[tuple[int, str]] = []
    if rest < _SECOND:
        return "now"
    for unit, length in _UNITS:
        count, rest = divmod(rest, length)
        if count or parts:
            parts.append((count, unit))
    text = "".join(f"{count}{unit}" for count, unit in parts[:2] if count)
    return f"in {text}" if distance > timedelta() else f"{text} ago"
