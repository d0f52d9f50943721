"""How durations, times, pairs and tokens are written on the command line and in JSON lines.

15m, 30s, 2h30m, 250ms, 40d; 2026-05-17T18:00:00+02:00 or ...Z, and without an offset this machine's local time.
"""

import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

import typer

from tickwheel.errors import InvalidArgument
from tickwheel.model.durations import DURATION
from tickwheel.model.durations import format_duration as format_duration
from tickwheel.model.durations import parse_duration as parse_duration
from tickwheel.model.validation import preview

T = TypeVar("T")
_TOKEN = re.compile(r"[0-9a-fA-F]{32}")


def directory(text: str) -> Path:
    """The path of a directory."""
    if not text:
        raise InvalidArgument("the name of a directory is empty: write . for this one")
    return Path(text)


def moment(text: str) -> datetime:
    """An ISO 8601 time; without an offset, local time."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument(
            "a time is written like 2026-05-17T18:00:00+02:00, or without the offset for local time, not"
            f" {preview(text)}"
        ) from error


def deadline(text: str) -> datetime | timedelta:
    """A duration from now, or before now with a minus; or a time."""
    if isinstance(text, str) and DURATION.fullmatch(text.removeprefix("-")):
        return -parse_duration(text[1:]) if text.startswith("-") else parse_duration(text)
    return moment(text)


def token(text: str) -> bytes:
    """A lease's token in hexadecimal, as `dequeue` prints it."""
    if not isinstance(text, str) or not _TOKEN.fullmatch(text):
        raise InvalidArgument(f"a token is 32 hexadecimal digits, as dequeue prints it, not {preview(text)}")
    return bytes.fromhex(text)


def pairs(texts: Iterable[str]) -> dict[str, str]:
    """``key=value`` each; a key that comes twice is a mistake."""
    result: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InvalidArgument(f"a pair is written key=value, not {preview(text)}")
        if key in result:
            raise InvalidArgument(f"the key {preview(key)} was given twice")
        result[key] = value
    return result


def option_parser(parse: Callable[[str], T]) -> Callable[[str], T]:
    """The parser as options take it: what it refuses is a wrong command line."""

    def convert(text: str) -> T:
        try:
            return parse(text)
        except InvalidArgument as error:
            raise typer.BadParameter(str(error)) from error

    return convert
