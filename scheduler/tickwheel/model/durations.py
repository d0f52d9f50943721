"""Durations as text: 15m, 30s, 2h30m, 250ms, 40d. Used on the command line and in load scenarios."""

import re
from datetime import timedelta

from tickwheel.errors import InvalidArgument
from tickwheel.model.validation import preview

_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds", "ms": "milliseconds"}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[dhms])")
DURATION = re.compile(rf"(?:{_PART.pattern})+")


def parse_duration(text: str) -> timedelta:
    """Return the duration that ``text`` describes, such as ``2h30m``. Raises InvalidArgument."""
    if not isinstance(text, str) or not DURATION.fullmatch(text):
        raise InvalidArgument(
            "a duration is written like 15m, 30s, 2h30m, 250ms or 40d, in the units d, h, m, s and ms and without a"
            f" sign, not {preview(text)}"
        )
    try:
        return sum((timedelta(**{_UNITS[unit]: float(n)}) for n, unit in _PART.findall(text)), timedelta())
    except OverflowError as error:
        raise InvalidArgument(f"a duration of {preview(text)} is too long") from error


def format_duration(ms: int) -> str:
    """Return a duration in ms in the notation of `parse_duration`."""
    if ms == 0:
        return "0s"
    parts, rest = [], ms
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)):
        count, rest = divmod(rest, length)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)
