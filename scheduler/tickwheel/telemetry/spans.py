"""Spans by OpenTelemetry's semantic conventions for messaging and RPCs. Import this module only if `tracing` is on.

A message carries the context of its enqueue span: the span in which it was enqueued. The span of a later operation on
messages links to their enqueue spans. If no other span is current, and all these messages have the same enqueue span,
the new span is also a child of the enqueue span.
https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tickwheel import limits
from tickwheel.model import message_content
from tickwheel.model.message import LeasedMessage, NewMessage
from tickwheel.storage.trace_context import KEYS, TRACEPARENT, TRACESTATE

_W3C: Final = TraceContextTextMapPropagator()
# The gRPC codes that count as errors of the server: https://opentelemetry.io/docs/specs/semconv/rpc/grpc/
_FAULTS: Final = {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}


def sending(queue: str) -> AbstractContextManager[Span]:
    """Open a span around an enqueue. The messages carry the context of the span."""
    return _start_span("send", "send", queue, SpanKind.PRODUCER)


def settling(how: str, queue: str, messages: Sequence[LeasedMessage]) -> AbstractContextManager[Span]:
    """Open a span around the settling of messages. ``how`` is complete, fail or release."""
    return _start_span(how, "settle", queue, SpanKind.CLIENT, messages)


def processing(message: LeasedMessage) -> AbstractContextManager[Span]:
    """Open a span around a worker's processing of a message."""
    return _start_span("process", "process", message.queue, SpanKind.CONSUMER, [message])


def record_receive(queue: str, messages: Sequence[LeasedMessage], since_ns: int) -> None:
    """Record the span of a dequeue that returned messages; the call started at ``since_ns``.

    The span is created afterwards because most dequeue calls return no message and need no span.
    """
    parent, links = _parent_and_links(messages)
    span = _tracer().start_span(
        f"receive {queue}",
        parent,
        SpanKind.CLIENT,
        _attributes("receive", "receive", queue),
        links,
        start_time=since_ns,
    )
    record_messages(span, [message.id for message in messages])
    span.end()


@contextmanager
def serving(method: str, metadata: Iterable[tuple[str, str | bytes]] | None) -> Iterator[Span]:
    """Open a span around the handling of an RPC. ``method`` is service/method. If ``metadata`` contain the caller's
    span, that span becomes the parent.
    """
    attributes = {"rpc.system.name": "grpc", "rpc.method": method}
    parent = _W3C.extract({key: value for key, value in metadata or () if key in KEYS})
    with _tracer().start_as_current_span(
        method, parent, SpanKind.SERVER, attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        yield span


def record_status_code(span: Span, code: str) -> None:
    """Record the gRPC code with which the call ended. Codes in `_FAULTS` mark the span as failed."""
    span.set_attribute("rpc.response.status_code", code)
    if code in _FAULTS:
        span.set_attribute("error.type", code)
        span.set_status(Status(StatusCode.ERROR))


def link_deliveries(span: Span, metadata: Iterable[Mapping[str, str]]) -> None:
    """Link the span to the enqueue spans of delivered messages. ``metadata`` has the metadata of each message."""
    for span_context in _span_contexts(metadata):
        span.add_link(span_context)


def record_messages(span: Span, ids: Sequence[str]) -> None:
    """Record the id of a single message, or else the number of messages."""
    if len(ids) == 1:
        span.set_attribute("messaging.message.id", ids[0])
    else:
        span.set_attribute("messaging.batch.message_count", len(ids))


def current_trace_pairs() -> dict[str, str]:
    """Return the metadata pairs by which a message carries the current span. A `tracestate` that exceeds the maximum
    length of a metadata value is left out.
    """
    carrier: dict[str, str] = {}
    _W3C.inject(carrier)
    if len(carrier.get(TRACESTATE, "").encode()) > limits.PAIR_VALUE_BYTES:
        del carrier[TRACESTATE]
    return carrier


def with_trace_context(new: NewMessage, trace_pairs: dict[str, str]) -> NewMessage:
    """Return the message with these pairs added, or unchanged if it carries a trace already.

    Raises InvalidArgument for invalid metadata.
    """
    metadata = {} if new.metadata is None else message_content.metadata(new.metadata)
    return new if TRACEPARENT in metadata else replace(new, metadata=metadata | trace_pairs)


def _parent_and_links(messages: Sequence[LeasedMessage]) -> tuple[Context | None, list[Link]]:
    """Return the parent (None: the current span) and the links of a span for an operation on these messages."""
    origins = _span_contexts(message.metadata for message in messages)
    links = [Link(origin) for origin in origins]
    if len(origins) != 1 or trace.get_current_span().get_span_context().is_valid:
        return None, links
    return trace.set_span_in_context(trace.NonRecordingSpan(origins[0])), links


def _span_contexts(metadata: Iterable[Mapping[str, str]]) -> list[SpanContext]:
    """Return the distinct enqueue spans that the metadata of messages contain."""
    contexts = {}
    for pairs in metadata:
        if TRACEPARENT in pairs:
            carrier = {key: pairs[key] for key in KEYS if key in pairs}
            contexts[carrier[TRACEPARENT]] = trace.get_current_span(_W3C.extract(carrier)).get_span_context()
    return [context for context in contexts.values() if context.is_valid]


@contextmanager
def _start_span(
    name: str, kind: str, queue: str, role: SpanKind, messages: Sequence[LeasedMessage] = ()
) -> Iterator[Span]:
    """Open a span around an operation. ``messages`` are the leased messages that the caller passed to it, if any."""
    parent, links = _parent_and_links(messages)
    with _tracer().start_as_current_span(
        f"{name} {queue}", parent, role, _attributes(name, kind, queue), links
    ) as span:
        if messages:
            record_messages(span, [message.id for message in messages])
        try:
            yield span
        except Exception as error:
            span.set_attribute("error.type", type(error).__qualname__)
            raise


def _attributes(name: str, kind: str, queue: str) -> dict[str, Any]:
    return {
        "messaging.system": "tickwheel",
        "messaging.destination.name": queue,
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
    }


def _tracer() -> trace.Tracer:
    return trace.get_tracer("tickwheel")
