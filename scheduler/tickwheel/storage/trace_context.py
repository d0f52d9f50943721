"""The trace of a message: two metadata pairs, with the names and the format of W3C Trace Context.

Both pairs describe the origin of a message, not its content. They are stored and delivered like other pairs, but they
are never indexed and do not count towards the maximum number of pairs. If a message is enqueued again, its trace is not
compared, so a message with the same content from another span is not a conflict.
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
