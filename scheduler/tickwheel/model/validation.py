"""Checks what callers pass, before anything is sent, and turns times into integer milliseconds.

Every refusal is an InvalidArgument that says what was wrong, with which value, and what is allowed.
"""

import re
from collections.abc import Collection, Mapping, Sized
from datetime import UTC, datetime, timedelta
from itertools import islice
from operator import index
from typing import Any, SupportsIndex, cast

from tickwheel import limits
from tickwheel.errors import InvalidArgument, PayloadTooLarge
from tickwheel.storage import trace_context

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_DAYS_MAX = 100_000
# What a record has room for.
_DUE_MS_MAX = 2**48 - 1


def preview(value: object) -> str:
    """A value as an error prints it: escaped, and cut where it is long."""
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def plain_name(label: str, value: object) -> str:
    """The name of a queue or namespace."""
    if not isinstance(value, str) or len(value) > limits.NAME_CHARS or not _NAME.fullmatch(value):
        raise InvalidArgument(
            f"{label} must be 1 to {limits.NAME_CHARS} of letters, digits, '.', '_' and '-', not {preview(value)}"
        )
    return to_plain_str(value)


def to_plain_str(value: str) -> str:
    """The text itself: a member of an enumeration of texts, say, prints and formats as something else."""
    return str.__str__(value)


def text(label: str, value: object, maximum: int, *, minimum: int = 0, nul: bool = True) -> bytes:
    """A string as UTF-8, of ``least`` to ``most`` bytes."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{label} must be a str, not {type(value).__name__} {preview(value)}")
    try:
        raw = str.encode(value)
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{label} must be valid Unicode text, not {preview(value)}") from error
    if not minimum <= len(raw) <= maximum:
        raise InvalidArgument(
            f"{label} must be {minimum} to {maximum} bytes of UTF-8, not {len(raw)}: {preview(value)}"
        )
    if not nul and b"\0" in raw:
        raise InvalidArgument(f"{label} must not contain NUL: {preview(value)}")
    return raw


def message_id(value: object) -> bytes:
    """The id that a caller chose: 1 to 128 bytes of UTF-8 without NUL."""
    return text("id", value, limits.ID_BYTES, minimum=1, nul=False)


def payload(value: object, maximum: int = limits.PAYLOAD_BYTES) -> bytes:
    """The payload as bytes."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidArgument(f"payload must be bytes, not {type(value).__name__} {preview(value)}")
    raw = bytes(value)
    if len(raw) > maximum:
        raise PayloadTooLarge(
            f"payload has {len(raw)} bytes, at most {maximum} are allowed: store it elsewhere and enqueue where it is"
        )
    return raw


def metadata(value: object) -> dict[str, str]:
    """Up to 16 string pairs, and those of the trace."""
    return _pairs("metadata", value)


def filters(value: object) -> dict[str, str]:
    """What `where` may be: pairs that an index may have."""
    pairs = _pairs("where", value)
    for key in trace_context.KEYS:
        if key in pairs:
            raise InvalidArgument(f"where cannot name {key!r}: it says which trace a message is of, and has no index")
    return pairs


def _pairs(label: str, value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"{label} must be a mapping of str to str, not {type(value).__name__} {preview(value)}")
    # Read once: a mapping of the caller's own may answer otherwise the second time, or have no end.
    pairs = {}
    for key, item in islice(value.items(), limits.PAIRS_MAX + len(trace_context.KEYS) + 1):
        text(f"a key of {label}", key, limits.PAIR_KEY_BYTES, minimum=1)
        text(f"{label}[{preview(key)}]", item, limits.PAIR_VALUE_BYTES)
        pairs[to_plain_str(key)] = to_plain_str(item)
    if len(pairs) > limits.PAIRS_MAX and len(trace_context.strip_trace_context(pairs)) > limits.PAIRS_MAX:
        raise InvalidArgument(f"{label} has more than {limits.PAIRS_MAX} pairs, the most that are allowed")
    return pairs


def integer(label: str, value: object, minimum: int, maximum: int) -> int:
    """A whole number from ``least`` to ``most``."""
    try:
        number = None if isinstance(value, bool) else index(cast(SupportsIndex, value))
    except TypeError:
        number = None
    if number is None or not minimum <= number <= maximum:
        raise InvalidArgument(f"{label} must be a whole number from {minimum} to {maximum}, not {preview(value)}")
    return int(number)


def check_max_items(label: str, items: Sized, maximum: int) -> None:
    """Raises InvalidArgument for a call with more of them."""
    if len(items) > maximum:
        raise InvalidArgument(f"{label} are {len(items)}, and at most {maximum} are allowed in one call")


def boolean(label: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidArgument(f"{label} must be True or False, not {preview(value)}")
    return value


class WireDuration(int):
    """Milliseconds where a timedelta is expected: as they come over the network."""


class WireTimestamp(int):
    """Milliseconds since 1970 where a datetime is expected: as they come over the network, before 1 and after 9999."""


def duration_ms(label: str, value: object, minimum: int, maximum: int) -> int:
    """A timedelta in whole milliseconds, rounded up so that nothing is early."""
    if isinstance(value, WireDuration):
        return integer(f"{label}_ms", int(value), minimum, maximum)
    if not isinstance(value, timedelta):
        raise InvalidArgument(f"{label} must be a datetime.timedelta, not {type(value).__name__} {preview(value)}")
    # Compared first: the longest timedelta cannot be negated.
    ms = -(-value // _MS) if abs(value.days) <= _DAYS_MAX else maximum + 1
    # A microsecond before zero would round to it.
    if value.days < 0 or not minimum <= ms <= maximum:
        raise InvalidArgument(
            f"{label} must be from {timedelta(milliseconds=minimum)} to {timedelta(milliseconds=maximum)}, not {value}"
        )
    return ms


def timestamp_ms(label: str, value: object, *, round_up: bool) -> int:
    """An aware datetime in ms since 1970, rounded up or down to the millisecond."""
    if not isinstance(value, datetime):
        raise InvalidArgument(
            f"{label} must be an aware datetime.datetime, not {type(value).__name__} {preview(value)}"
        )
    if value.utcoffset() is None:
        raise InvalidArgument(f"{label} has no time zone: {value!r}; say which, for example value.astimezone()")
    since = value - _EPOCH
    return -(-since // _MS) if round_up else since // _MS


def due_ms(value: object) -> int:
    """An explicit due time: 1970 or later. How far ahead is checked against the clock by `delay_is_allowed`."""
    if isinstance(value, WireTimestamp):
        return integer("due_ms", int(value), 0, _DUE_MS_MAX)
    ms = timestamp_ms("due", value, round_up=True)
    if ms < 0:
        raise InvalidArgument(f"due must be 1970-01-01 or later, not {value}")
    return ms


def deadline_ms(value: object) -> tuple[int, bool]:
    """A deadline in ms, and whether it counts from the moment of the call (a timedelta) or from 1970."""
    # The script adds the clock, which has 48 bits, and Lua tells numbers apart up to 53.
    maximum = limits.DEADLINE_MS_MAX - 2**48
    if isinstance(value, WireTimestamp):
        return integer("deadline_ms", int(value), -limits.DEADLINE_MS_MAX, limits.DEADLINE_MS_MAX), False
    if isinstance(value, WireDuration):
        return integer("deadline_in_ms", int(value), -maximum, maximum), True
    if isinstance(value, timedelta):
        if abs(value // _MS) > maximum:
            raise InvalidArgument(f"deadline must be within {timedelta(milliseconds=maximum)} from now, not {value}")
        return value // _MS, True
    return timestamp_ms("deadline", value, round_up=False), False


def one_of(label: str, value: object, allowed: Collection[str]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise InvalidArgument(f"{label} must be one of {', '.join(allowed)}, not {preview(value)}")
    return to_plain_str(value)


def from_ms(ms: int) -> datetime:
    """An aware datetime, in UTC. Beyond the years of datetime it is the first or last there is."""
    try:
        return _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC) if ms > 0 else datetime.min.replace(tzinfo=UTC)


def reject_unknown(label: str, values: Mapping[str, Any], allowed: Collection[str]) -> None:
    """Refuses settings that do not exist, by name."""
    for key in values:
        if key not in allowed:
            raise InvalidArgument(f"{label} has no setting {preview(key)}; there are {', '.join(sorted(allowed))}")
