"""OpenTelemetry: whether tracing is on, and the span of a worker's processing.

Tracing is on if the program has set a tracer provider. While tracing is off, this module does not import OpenTelemetry.
Spans are in `telemetry.spans`, which needs the extra `tracing`. A message carries the context of the span that enqueued
the message (`storage.trace_context`).
"""

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tickwheel.model.message import LeasedMessage


_NOTHING: Final = nullcontext()


def is_on() -> bool:
    """Return whether this program has set a tracer provider. Does not import OpenTelemetry."""
    api = sys.modules.get("opentelemetry.trace")
    return api is not None and not isinstance(api.get_tracer_provider(), api.ProxyTracerProvider)


def processing(message: "LeasedMessage") -> AbstractContextManager[object]:
    """Return a context manager that opens a span for a worker's processing of a message, in the message's trace."""
    if not is_on():
        return _NOTHING
    from tickwheel.telemetry import spans

    return spans.processing(message)


def carried() -> tuple[tuple[str, str], ...]:
    """Return the trace context of the current span as metadata pairs of an RPC; empty while tracing is off."""
    if not is_on():
        return ()
    from tickwheel.telemetry import spans

    return tuple(spans.current_trace_pairs().items())
