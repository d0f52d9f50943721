"""Output: JSON for programs, and formats for people. The tables are in `tickwheel.cli.tables`."""

import base64
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from tickwheel.model.results import Lateness
from tickwheel.runtime.log_format import print_error, print_line
from tickwheel.runtime.text_escape import escape_unprintable

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


def _to_json_value(value: object) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds")
    raise TypeError(f"{type(value).__name__} has no JSON form")
