"""Checks of arguments before anything is sent, and conversions of times to integer milliseconds.

Every check raises InvalidArgument, with the name of the argument, its value and the allowed values.
"""

import re
from collections.abc import Collection, Mapping, Sized
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from operator import index
from typing import Any, SupportsIndex, TypeVar, cast

from tickwheel import limits
from tickwheel.errors import InvalidArgument

T = TypeVar("T")
# A duration as callers pass it. A number counts seconds.
Duration = timedelta | float
_NAME = re.compile(r"[A-Za-z0-9._-]+")
# The names of the placeholders of deleted queues (`operations/removal/queue_numbers.py`).
_PLACEHOLDER = re.compile(r"deleted\.[0-9]+\.[0-9a-f]+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_PREVIEW_CHARS = 80
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,31}")
_UNITS = {unit: timedelta(seconds=count) for unit, count in (("day", 86_400), ("hour", 3_600), ("min", 60), ("s", 1))}
_UNITS["ms"] = _MS
# From this duration on, error texts print whole days.
_ONLY_DAYS = timedelta(days=1_000)
# A record has 48 bits for the due time.
_DUE_MS_MAX = 2**48 - 1


def preview(value: object) -> str:
    """Return a value as error texts print it: escaped, and cut to 80 characters; its type if it cannot be printed."""
    # A text of a request can have megabytes, and escaping makes it larger. So most of the text is never escaped.
    try:
        text = ascii(value[:_PREVIEW_CHARS] if type(value) is str or type(value) is bytes else value)
    except Exception:
        # Python prints no integer of more than 4,300 digits, and no value that is nested too deeply. A class of the
        # caller can raise any error.
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _PREVIEW_CHARS else f"{text[: _PREVIEW_CHARS - 3]}..."


def preview_url(url: object) -> str:
    """Return the scheme of a URL, for error texts. The rest of an invalid URL can contain a password anywhere."""
    if not isinstance(url, str):
        return f"a value of the type {type(url).__name__}"
    scheme, separator, _ = url.partition("://")
    return f"{scheme}://…" if separator and _SCHEME.fullmatch(scheme) else "a text without a scheme"


def plain_name(label: str, value: object) -> str:
    """Return the checked name of a queue or namespace."""
    if not isinstance(value, str) or len(value) > limits.NAME_CHARS or not _NAME.fullmatch(value):
        raise InvalidArgument(
            f"{label} must have 1 to {limits.NAME_CHARS} letters, digits, '.', '_' or '-', not {preview(value)}"
        )
    return to_plain_str(value)


def check_new_queue(name: str) -> None:
    """Raise InvalidArgument if a new queue must not have this name: a deletion could overwrite the queue."""
    if _PLACEHOLDER.fullmatch(name):
        raise InvalidArgument(
            f"the name of a new queue must not have the form deleted.NUMBER.UID, as {name!r} has: Tickwheel gives such"
            " names to the placeholders of deleted queues; choose another name"
        )


def to_plain_str(value: str) -> str:
    """Return ``value`` as a plain str: a member of a str enumeration, for example, would print differently."""
    return str.__str__(value)


def text(label: str, value: object, maximum: int, *, minimum: int = 0, nul: bool = True) -> bytes:
    """Return a checked string as UTF-8, of ``minimum`` to ``maximum`` bytes. ``nul`` allows NUL characters."""
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
    """Return a caller's id of a message: 1 to 128 bytes of UTF-8 without NUL."""
    return text("id", value, limits.ID_BYTES, minimum=1, nul=False)


def integer(label: str, value: object, minimum: int, maximum: int) -> int:
    """Return a checked whole number from ``minimum`` to ``maximum``."""
    try:
        number = None if isinstance(value, bool) else index(cast(SupportsIndex, value))
    except TypeError:
        number = None
    if number is None or not minimum <= number <= maximum:
        raise InvalidArgument(f"{label} must be a whole number from {minimum} to {maximum}, not {preview(value)}")
    return int(number)


def check_max_items(label: str, items: Sized, maximum: int) -> None:
    """Raise InvalidArgument if a call has more than ``maximum`` items."""
    if len(items) > maximum:
        raise InvalidArgument(f"a call takes at most {maximum} {label}, not {len(items)}")


def boolean(label: str, value: object) -> bool:
    """Return ``value`` if it is True or False."""
    if not isinstance(value, bool):
        raise InvalidArgument(f"{label} must be True or False, not {preview(value)}")
    return value


class WireDuration(int):
    """Milliseconds in place of a timedelta, as the service receives them."""


class WireTimestamp(int):
    """Milliseconds since 1970 in place of a datetime, as the service receives them.

    Unlike a datetime, a WireTimestamp can be before the year 1 or after the year 9999.
    """


def describe_duration(value: timedelta) -> str:
    """Return a duration as error texts print it, in its largest whole unit: "30 s", "12 hours", "1825 days"."""
    sign, length = "-" if value < timedelta(0) else "", abs(value)
    if length >= _ONLY_DAYS:
        return f"{sign}{length.days} days"
    for unit, step in _UNITS.items():
        count, rest = divmod(length, step)
        if count and not rest:
            plural = "s" if count > 1 and unit in ("day", "hour") else ""
            return f"{sign}{count} {unit}{plural}"
    return f"{value.total_seconds():g} s"


def describe_ms(ms: int) -> str:
    """Return a duration in ms as error texts print it."""
    return describe_duration(timedelta(milliseconds=ms))


def duration_ms(label: str, value: object, minimum: int, maximum: int, *, round_up: bool = True) -> int:
    """Return a duration in whole milliseconds, by default rounded up so that nothing happens early.

    ``value`` is a timedelta, or a number of seconds: an int or a float, but not a bool and not NaN.
    """
    if isinstance(value, WireDuration):
        return integer(f"{label}_ms", int(value), minimum, maximum)
    if isinstance(value, timedelta):
        length, negative = value, value.days < 0
    else:
        number = _seconds(label, value, minimum, maximum)
        length, negative = timedelta(seconds=number), number < 0
    ms = length // _MS + (round_up and length % _MS > timedelta(0))
    # A negative duration of less than 1 ms rounds to zero, so the sign of the original value is checked, too.
    if negative or not minimum <= ms <= maximum:
        text = describe_duration(value) if isinstance(value, timedelta) else f"{preview(value)} s"
        raise _outside(label, minimum, maximum, text)
    return ms


def duration(label: str, value: object, minimum: int, maximum: int) -> timedelta:
    """Return a duration as a timedelta, after the checks of `duration_ms`, which describes ``value``."""
    duration_ms(label, value, minimum, maximum)
    return as_timedelta(cast(Duration, value))


def as_timedelta(value: Duration) -> timedelta:
    """Return a duration, which was checked before, as a timedelta."""
    return value if isinstance(value, timedelta) else timedelta(seconds=value)


def _seconds(label: str, value: object, minimum: int, maximum: int) -> float:
    """Return a number of seconds that a timedelta can represent."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgument(
            f"{label} must be a datetime.timedelta or a number of seconds, not {type(value).__name__} {preview(value)}"
        )
    try:
        timedelta(seconds=value)
    # NaN raises ValueError; infinity and large numbers raise OverflowError.
    except (ValueError, OverflowError) as error:
        raise _outside(label, minimum, maximum, f"{preview(value)} s") from error
    return value


def _outside(label: str, minimum: int, maximum: int, value: str) -> InvalidArgument:
    return InvalidArgument(f"{label} must be from {describe_ms(minimum)} to {describe_ms(maximum)}, not {value}")


def timestamp_ms(label: str, value: object, *, round_up: bool, alternative: str = "") -> int:
    """Return an aware datetime in ms since 1970, rounded up or down to the millisecond.

    ``alternative`` is the part of the error text that names another allowed type.
    """
    if not isinstance(value, datetime):
        raise InvalidArgument(
            f"{label} must be an aware datetime.datetime{alternative}, not {type(value).__name__} {preview(value)}"
        )
    if value.utcoffset() is None:
        raise InvalidArgument(f"{label} has no time zone: {value!r}; add one, for example by value.astimezone()")
    since = value - _EPOCH
    return -(-since // _MS) if round_up else since // _MS


def due_ms(value: object) -> int:
    """Return an explicit due time in ms: 1970 or later.

    The script checks the upper bound against the clock of its server (error TOOFAR).
    """
    if isinstance(value, WireTimestamp):
        return integer("due_ms", int(value), 0, _DUE_MS_MAX)
    ms = timestamp_ms("due", value, round_up=True)
    if ms < 0:
        raise InvalidArgument(f"due must be 1970-01-01 or later, not {value}")
    return ms


def deadline_ms(value: object) -> tuple[int, bool]:
    """Return a deadline in ms, and whether it counts from the time of the call (a timedelta) or from 1970."""
    # The script adds the current time, which has 48 bits, and Lua represents whole numbers exactly up to 53 bits.
    maximum = limits.DEADLINE_MS_MAX - 2**48
    if isinstance(value, WireTimestamp):
        return integer("deadline_ms", int(value), -limits.DEADLINE_MS_MAX, limits.DEADLINE_MS_MAX), False
    if isinstance(value, WireDuration):
        return integer("deadline_in_ms", int(value), -maximum, maximum), True
    if isinstance(value, timedelta):
        if abs(value // _MS) > maximum:
            raise InvalidArgument(
                f"deadline must be within {describe_ms(maximum)} from now, not {describe_duration(value)}"
            )
        return value // _MS, True
    # A number is rejected: it could be seconds from now, or a Unix time.
    return timestamp_ms("deadline", value, round_up=False, alternative=" or a datetime.timedelta"), False


def one_of(label: str, value: object, allowed: Collection[str]) -> str:
    """Return ``value`` if it is one of the allowed strings."""
    if not isinstance(value, str) or value not in allowed:
        raise InvalidArgument(f"{label} must be one of {', '.join(allowed)}, not {preview(value)}")
    return to_plain_str(value)


def instance(label: str, value: object, kind: type[T], remedy: str) -> T:
    """Return ``value`` if it is an instance of ``kind``."""
    if not isinstance(value, kind):
        raise InvalidArgument(
            f"{label} must be a {kind.__name__}, not {type(value).__name__} {preview(value)}: {remedy}"
        )
    return value


def function(label: str, value: T) -> T:
    """Return ``value`` if it can be called."""
    if not callable(value):
        raise InvalidArgument(f"{label} must be a function, not {type(value).__name__} {preview(value)}")
    return value


def from_ms(ms: int) -> datetime:
    """Return an aware datetime in UTC. A time outside the range of datetime becomes the first or last datetime."""
    try:
        return _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC) if ms > 0 else datetime.min.replace(tzinfo=UTC)


def reject_unknown(label: str, values: Mapping[str, Any], allowed: Collection[str]) -> None:
    """Raise InvalidArgument if a key of ``values`` is not in ``allowed``."""
    for key in values:
        if key not in allowed:
            raise InvalidArgument(
                f"{label} has no setting {preview(key)}{suggest(key, allowed)}; the settings are"
                f" {', '.join(sorted(allowed))}"
            )


def suggest(name: object, allowed: Collection[str]) -> str:
    """Return a question for the end of an error about an unknown name, with a similar allowed name, or ''."""
    # The comparison takes time in proportion to the length of the name.
    close = get_close_matches(name, allowed, n=1) if isinstance(name, str) and len(name) <= _PREVIEW_CHARS else []
    return f" (did you mean {close[0]!r}?)" if close else ""
