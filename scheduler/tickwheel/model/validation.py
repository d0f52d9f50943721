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


def shown(value: object) -> str:
    """A value as an error prints it: escaped, and cut where it is long."""
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def plain_name(what: str, value: object) -> str:
    """The name of a queue or namespace."""
    if not isinstance(value, str) or len(value) > limits.NAME_CHARS or not _NAME.fullmatch(value):
        raise InvalidArgument(
            f"{what} must be 1 to {limits.NAME_CHARS} of letters, digits, '.', '_' and '-', not {shown(value)}"
        )
    return plain(value)


def plain(value: str) -> str:
    """The text itself: a member of an enumeration of texts, say, prints and formats as something else."""
    return str.__str__(value)


def text(what: str, value: object, most: int, *, least: int = 0, nul: bool = True) -> bytes:
    """A string as UTF-8, of ``least`` to ``most`` bytes."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{what} must be a str, not {type(value).__name__} {shown(value)}")
    try:
        raw = str.encode(value)
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{what} must be valid Unicode text, not {shown(value)}") from error
    if not least <= len(raw) <= most:
        raise InvalidArgument(f"{what} must be {least} to {most} bytes of UTF-8, not {len(raw)}: {shown(value)}")
    if not nul and b"\0" in raw:
        raise InvalidArgument(f"{what} must not contain NUL: {shown(value)}")
    return raw


def message_id(value: object) -> bytes:
    """The id that a caller chose: 1 to 128 bytes of UTF-8 without NUL."""
    return text("id", value, limits.ID_BYTES, least=1, nul=False)


def payload(value: object, most: int = limits.PAYLOAD_BYTES) -> bytes:
    """The payload as bytes."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidArgument(f"payload must be bytes, not {type(value).__name__} {shown(value)}")
    raw = bytes(value)
    if len(raw) > most:
        raise PayloadTooLarge(
            f"payload has {len(raw)} bytes, at most {most} are allowed: store it elsewhere and enqueue where it is"
        )
    return raw


def metadata(value: object) -> dict[str, str]:
    """Up to 16 string pairs, and those of the trace."""
    return _pairs("metadata", value)


def filters(value: object) -> dict[str, str]:
    """What `where` may be: pairs that an index may have."""
    given = _pairs("where", value)
    for key in trace_context.KEYS:
        if key in given:
            raise InvalidArgument(f"where cannot name {key!r}: it says which trace a message is of, and has no index")
    return given


def _pairs(what: str, value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"{what} must be a mapping of str to str, not {type(value).__name__} {shown(value)}")
    # Read once: a mapping of the caller's own may answer otherwise the second time, or have no end.
    given = {}
    for key, item in islice(value.items(), limits.PAIRS_MAX + len(trace_context.KEYS) + 1):
        text(f"a key of {what}", key, limits.PAIR_KEY_BYTES, least=1)
        text(f"{what}[{shown(key)}]", item, limits.PAIR_VALUE_BYTES)
        given[plain(key)] = plain(item)
    if len(given) > limits.PAIRS_MAX and len(trace_context.without(given)) > limits.PAIRS_MAX:
        raise InvalidArgument(f"{what} has more than {limits.PAIRS_MAX} pairs, the most that are allowed")
    return given


def integer(what: str, value: object, least: int, most: int) -> int:
    """A whole number from ``least`` to ``most``."""
    try:
        number = None if isinstance(value, bool) else index(cast(SupportsIndex, value))
    except TypeError:
        number = None
    if number is None or not least <= number <= most:
        raise InvalidArgument(f"{what} must be a whole number from {least} to {most}, not {shown(value)}")
    return int(number)


def at_most(what: str, given: Sized, most: int) -> None:
    """Raises InvalidArgument for a call with more of them."""
    if len(given) > most:
        raise InvalidArgument(f"{what} are {len(given)}, and at most {most} are allowed in one call")


def boolean(what: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidArgument(f"{what} must be True or False, not {shown(value)}")
    return value


class MsFor(int):
    """Milliseconds where a timedelta is expected: as they come over the network."""


class MsAt(int):
    """Milliseconds since 1970 where a datetime is expected: as they come over the network, before 1 and after 9999."""


def duration_ms(what: str, value: object, least: int, most: int) -> int:
    """A timedelta in whole milliseconds, rounded up so that nothing is early."""
    if isinstance(value, MsFor):
        return integer(f"{what}_ms", int(value), least, most)
    if not isinstance(value, timedelta):
        raise InvalidArgument(f"{what} must be a datetime.timedelta, not {type(value).__name__} {shown(value)}")
    # Compared first: the longest timedelta cannot be negated.
    ms = -(-value // _MS) if abs(value.days) <= _DAYS_MAX else most + 1
    # A microsecond before zero would round to it.
    if value.days < 0 or not least <= ms <= most:
        raise InvalidArgument(
            f"{what} must be from {timedelta(milliseconds=least)} to {timedelta(milliseconds=most)}, not {value}"
        )
    return ms


def moment_ms(what: str, value: object, *, up: bool) -> int:
    """An aware datetime in ms since 1970, rounded up or down to the millisecond."""
    if not isinstance(value, datetime):
        raise InvalidArgument(f"{what} must be an aware datetime.datetime, not {type(value).__name__} {shown(value)}")
    if value.utcoffset() is None:
        raise InvalidArgument(f"{what} has no time zone: {value!r}; say which, for example value.astimezone()")
    since = value - _EPOCH
    return -(-since // _MS) if up else since // _MS


def due_ms(value: object) -> int:
    """An explicit due time: 1970 or later. How far ahead is checked against the clock by `delay_is_allowed`."""
    if isinstance(value, MsAt):
        return integer("due_ms", int(value), 0, _DUE_MS_MAX)
    ms = moment_ms("due", value, up=True)
    if ms < 0:
        raise InvalidArgument(f"due must be 1970-01-01 or later, not {value}")
    return ms


def deadline_ms(value: object) -> tuple[int, bool]:
    """A deadline in ms, and whether it counts from the moment of the call (a timedelta) or from 1970."""
    # The script adds the clock, which has 48 bits, and Lua tells numbers apart up to 53.
    most = limits.DEADLINE_MS_MAX - 2**48
    if isinstance(value, MsAt):
        return integer("deadline_ms", int(value), -limits.DEADLINE_MS_MAX, limits.DEADLINE_MS_MAX), False
    if isinstance(value, MsFor):
        return integer("deadline_in_ms", int(value), -most, most), True
    if isinstance(value, timedelta):
        if abs(value // _MS) > most:
            raise InvalidArgument(f"deadline must be within {timedelta(milliseconds=most)} from now, not {value}")
        return value // _MS, True
    return moment_ms("deadline", value, up=False), False


def one_of(what: str, value: object, allowed: Collection[str]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise InvalidArgument(f"{what} must be one of {', '.join(allowed)}, not {shown(value)}")
    return plain(value)


def from_ms(ms: int) -> datetime:
    """An aware datetime, in UTC. Beyond the years of datetime it is the first or last there is."""
    try:
        return _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC) if ms > 0 else datetime.min.replace(tzinfo=UTC)


def known(what: str, given: Mapping[str, Any], allowed: Collection[str]) -> None:
    """Refuses settings that do not exist, by name."""
    for key in given:
        if key not in allowed:
            raise InvalidArgument(f"{what} has no setting {shown(key)}; there are {', '.join(sorted(allowed))}")
