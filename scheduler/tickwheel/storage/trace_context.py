"""The trace that a message belongs to: two pairs of its metadata, named and written as W3C Trace Context has them.

They say where a message comes from, not what it is. So they are stored and delivered like any pair, but never indexed,
no part of its content (the same message again, from another span, is the same), and beyond the number of pairs.
https://www.w3.org/TR/trace-context/
"""

from collections.abc import Mapping
from typing import Final

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
KEYS: Final = frozenset((TRACEPARENT, TRACESTATE))


def strip_trace_context(metadata: Mapping[str, str]) -> Mapping[str, str]:
    """The pairs that are content; the very mapping where all are."""
    if KEYS.isdisjoint(metadata):
        return metadata
    return {key: value for key, value in metadata.items() if key not in KEYS}
