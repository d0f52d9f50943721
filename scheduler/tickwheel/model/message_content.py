"""Checks of the content of messages: payloads, metadata, and the filters that select messages by their metadata.

Every check raises InvalidArgument, with the name of the argument, its value and the allowed values.
"""

from collections.abc import Mapping
from itertools import islice

from tickwheel import limits
from tickwheel.errors import InvalidArgument, PayloadTooLarge
from tickwheel.model.validation import preview, text, to_plain_str
from tickwheel.storage import trace_context


def payload(value: object, maximum: int = limits.PAYLOAD_BYTES) -> bytes:
    """Return the payload as bytes; a str as UTF-8. Raises PayloadTooLarge if it has more than ``maximum`` bytes."""
    if isinstance(value, str):
        try:
            raw = str.encode(value)
        except UnicodeEncodeError as error:
            raise InvalidArgument(f"payload must be bytes or valid Unicode text, not {preview(value)}") from error
    elif isinstance(value, bytes | bytearray | memoryview):
        raw = bytes(value)
    else:
        raise InvalidArgument(
            f"payload must be bytes or str, not {type(value).__name__} {preview(value)}: to send the value as JSON,"
            " use the argument json"
        )
    if len(raw) > maximum:
        raise PayloadTooLarge(
            f"payload has {len(raw)} bytes, at most {maximum} are allowed: store the content elsewhere and enqueue a"
            " reference to it"
        )
    return raw


def metadata(value: object) -> dict[str, str]:
    """Return the checked metadata: up to 16 string pairs, and the two pairs of the trace context."""
    return _pairs("metadata", value)


def filters(value: object) -> dict[str, str]:
    """Return the checked pairs of `where`. The keys of the trace context are rejected, because they have no index."""
    pairs = _pairs("where", value)
    for key in trace_context.KEYS:
        if key in pairs:
            raise InvalidArgument(
                f"where cannot name {key!r}: this key is part of the trace context, which has no index"
            )
    return pairs


def _pairs(label: str, value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"{label} must be a mapping of str to str, not {type(value).__name__} {preview(value)}")
    # Read the mapping once, and only as far as needed: a mapping of the caller's own class may be endless, or may
    # return other pairs when it is read again.
    pairs = {}
    for key, item in islice(value.items(), limits.PAIRS_MAX + len(trace_context.KEYS) + 1):
        text(f"a key of {label}", key, limits.PAIR_KEY_BYTES, minimum=1)
        text(f"{label}[{preview(key)}]", item, limits.PAIR_VALUE_BYTES)
        pairs[to_plain_str(key)] = to_plain_str(item)
    if len(pairs) > limits.PAIRS_MAX and len(trace_context.strip_trace_context(pairs)) > limits.PAIRS_MAX:
        raise InvalidArgument(f"{label} has more than {limits.PAIRS_MAX} pairs, the maximum")
    return pairs
