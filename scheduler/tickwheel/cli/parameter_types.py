"""Parsers of durations, times, pairs and tokens on the command line and in JSON lines.

Durations: 15m, 30s, 2h30m, 250ms, 40d. Times: 2026-05-17T18:00:00+02:00 or 2026-05-17T16:00:00Z. A time without an
offset is local time.
"""

import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

import typer

from tickwheel import limits
from tickwheel.errors import InvalidArgument
from tickwheel.model.durations import DURATION, format_duration as format_duration, parse_duration as parse_duration
from tickwheel.model.validation import preview

T = TypeVar("T")
_TOKEN = re.compile(r"[0-9a-fA-F]{32}")


def directory(text: str) -> Path:
    """Parse the path of a directory. Raises InvalidArgument if the path is empty."""
    if not text:
        raise InvalidArgument("the directory's name is empty: write . for the current directory")
    return Path(text)


def moment(text: str) -> datetime:
    """Parse an ISO 8601 time. A time without an offset is local time. Raises InvalidArgument."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument(
            f"{preview(text)} is not a time: write 2026-05-17T18:00:00+02:00, or 2026-05-17T18:00:00 for local time"
        ) from error


def delay(text: str) -> timedelta:
    """Parse a delay. The client checks its limit later. Raises InvalidArgument, which names the limit."""
    try:
        return parse_duration(text)
    except InvalidArgument as error:
        days = limits.DELAY_MS_MAX // 86_400_000
        raise InvalidArgument(f"{error}; the longest delay is {days}d ({days // 365} years)") from error


def deadline(text: str) -> datetime | timedelta:
    """Parse a deadline: a time, or a duration from now. A duration with a minus sign lies in the past.

    Raises InvalidArgument.
    """
    if isinstance(text, str) and DURATION.fullmatch(text.removeprefix("-")):
        return -parse_duration(text[1:]) if text.startswith("-") else parse_duration(text)
    return moment(text)


def token(text: str) -> bytes:
    """Parse a lease's token in hexadecimal, as `dequeue` prints it. Raises InvalidArgument."""
    if not isinstance(text, str) or not _TOKEN.fullmatch(text):
        raise InvalidArgument(f"a token is 32 hexadecimal digits, as printed by dequeue, not {preview(text)}")
    return bytes.fromhex(text)


def pairs(texts: Iterable[str]) -> dict[str, str]:
    """Parse texts of the form ``key=value``. Raises InvalidArgument, also for a duplicate key."""
    result: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InvalidArgument(f"a pair is written key=value, not {preview(text)}")
        if key in result:
            raise InvalidArgument(f"the key {preview(key)} is set twice")
        result[key] = value
    return result


def option_parser(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Return the parser for use with an option: its InvalidArgument becomes a usage error of the command line."""

    def convert(text: str) -> T:
        try:
            return parse(text)
        except InvalidArgument as error:
            raise typer.BadParameter(str(error)) from error

    return convert
