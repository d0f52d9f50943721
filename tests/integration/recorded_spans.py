"""The spans of a program in tests, kept in memory by OpenTelemetry's SDK."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import format_span_id, format_trace_id


class Spans:
    """The spans that have ended."""

    def __init__(self) -> None:
        self._kept = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._kept))

    def by_name(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._kept.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        [span] = self.by_name(name)
        return span

    def names(self) -> list[str]:
        return [span.name for span in self._kept.get_finished_spans()]


def trace_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return format_trace_id(span.context.trace_id)


def id_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return format_span_id(span.context.span_id)


def parent_of(span: ReadableSpan) -> str | None:
    return None if span.parent is None else format_span_id(span.parent.span_id)


def links_of(span: ReadableSpan) -> list[str]:
    return [format_span_id(link.context.span_id) for link in span.links]


@contextmanager
def provider_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    """Set a provider for one test. The API lets a program set a provider only once."""
    spans = Spans()
    with monkeypatch.context() as patch:
        patch.setattr(trace, "_TRACER_PROVIDER", spans.provider)
        yield spans
    spans.provider.shutdown()
