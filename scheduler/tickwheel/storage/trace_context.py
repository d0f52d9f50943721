"""The trace of a message: two metadata pairs, with the names and the format of W3C Trace Context.

Both pairs describe the origin of a message, not its content. They are stored and delivered like other pairs, but they
are never indexed and do not count towards the maximum number of pairs. They are not compared when a message is enqueued
again: the same message from another span is the same message.
https://www.w3.org/TR/trace-context/
"""

from collections.abc import Mapping
from typing import Final

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
KEYS: Final = frozenset((TRACEPARENT, TRACESTATE))


def strip_trace_context(metadata: Mapping[str, str]) -> Mapping[str, str]:
    """Return the pairs without the trace context; ``metadata`` itself if it contains no trace context."""
    if KEYS.isdisjoint(metadata):
        return metadata
    return {key: value for key, value in metadata.items() if key not in KEYS}
