"""Spans around enqueue, dequeue, complete, fail and release. This module imports OpenTelemetry, so import it only while
tracing is on."""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from tickwheel.client.backend import Backend
from tickwheel.model.message import EnqueueResult, LeasedMessage, NewMessage
from tickwheel.operations.settle import FailedAttempt, check_leased
from tickwheel.plan import Plan
from tickwheel.telemetry import spans

T = TypeVar("T")
M = TypeVar("M", bound=LeasedMessage)


class TracingBackend:
    """Wraps a backend. The plans of the methods below open spans. All other methods are those of the backend."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def enqueue_many(self, queue: str, messages: Iterable[NewMessage]) -> Plan[list[EnqueueResult]]:
        """Enqueue in a span. The messages carry the context of the span."""
        if not isinstance(messages, Iterable):
            return self._backend.enqueue_many(queue, messages)
        return self._enqueue_many(queue, messages)

    def dequeue(self, queue: str, *args: Any) -> Plan[list[M]]:
        """Dequeue. If messages are returned, record a span that is linked to the spans that enqueued the messages."""
        return _with_receive_span(self._backend.dequeue(queue, *args), queue)

    def complete(self, messages: Sequence[LeasedMessage], *args: Any) -> Plan[None]:
        return _with_settle_span(self._backend.complete(messages, *args), "complete", messages)

    def fail(self, message: LeasedMessage, *args: Any) -> Plan[FailedAttempt]:
        return _with_settle_span(self._backend.fail(message, *args), "fail", [message])

    def release(self, messages: Sequence[LeasedMessage]) -> Plan[None]:
        return _with_settle_span(self._backend.release(messages), "release", messages)

    def _enqueue_many(self, queue: str, messages: Iterable[NewMessage]) -> Plan[list[EnqueueResult]]:
        def with_trace_context(pairs: dict[str, str]) -> Iterator[NewMessage]:
            for new in messages:
                yield spans.with_trace_context(new, pairs) if isinstance(new, NewMessage) else new

        with spans.sending(queue) as span:
            results = yield from self._backend.enqueue_many(queue, with_trace_context(spans.current_trace_pairs()))
            spans.record_messages(span, [result.id for result in results])
            return results


def _with_receive_span(plan: Plan[list[M]], queue: str) -> Plan[list[M]]:
    since_ns = time.time_ns()
    messages = yield from plan
    if messages:
        spans.record_receive(queue, messages, since_ns)
    return messages


def _with_settle_span(plan: Plan[T], how: str, messages: Sequence[LeasedMessage]) -> Plan[T]:
    if not messages:
        return (yield from plan)
    check_leased(f"{how}_many", messages)
    with spans.settling(how, messages[0].queue, messages):
        return (yield from plan)
