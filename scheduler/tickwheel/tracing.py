"""OpenTelemetry, as far as every program meets it: whether it is on, and what costs nothing where it is not.

It is on where the program has set a provider of traces. The spans are in `spans`, which needs the extra `tracing`; the
context of the span that enqueued a message goes with the message (`trace_context`).
"""

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tickwheel.model.message import LeasedMessage


_NOTHING: Final = nullcontext()


def is_on() -> bool:
    """Whether this program has set a provider of traces. One that has not even imported them has none."""
    api = sys.modules.get("opentelemetry.trace")
    return api is not None and not isinstance(api.get_tracer_provider(), api.ProxyTracerProvider)


def processing(message: "LeasedMessage") -> AbstractContextManager[object]:
    """The span of a worker's work on a message, in the trace that the message belongs to. Use it in a ``with``."""
    if not is_on():
        return _NOTHING
    from tickwheel.telemetry import spans

    return spans.processing(message)


def carried() -> tuple[tuple[str, str], ...]:
    """The span that is open now, as metadata of a call over the network."""
    if not is_on():
        return ()
    from tickwheel.telemetry import spans

    return tuple(spans.current_trace_pairs().items())
