"""Spans around the operations that move messages, for both surfaces; where tracing is off the plans are as they are."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from typing import Any, TypeVar

from tickwheel import tracing
from tickwheel.model.message import EnqueueResult, LeasedMessage, NewMessage
from tickwheel.operations.settle import check_leased
from tickwheel.plan import Plan

T = TypeVar("T")
M = TypeVar("M", bound=LeasedMessage)

Enqueue = Callable[[Any, str, Iterable[NewMessage]], Plan[list[EnqueueResult]]]
Dequeue = Callable[..., Plan[list[M]]]
Settle = Callable[..., Plan[T]]


def trace_enqueue(enqueue: Enqueue) -> Enqueue:
    """For `enqueue_many`: the messages carry the span's context."""

    @wraps(enqueue)
    def wrapper(self: Any, queue: str, messages: Iterable[NewMessage]) -> Plan[list[EnqueueResult]]:
        if not tracing.is_on() or not isinstance(messages, Iterable):
            return enqueue(self, queue, messages)
        return _with_send_span(lambda new_messages: enqueue(self, queue, new_messages), queue, messages)

    return wrapper


def trace_dequeue(dequeue: Dequeue[M]) -> Dequeue[M]:
    """For `dequeue`: a span for each call that finds messages, linked to those that enqueued them."""

    @wraps(dequeue)
    def wrapper(self: Any, queue: str, *args: Any) -> Plan[list[M]]:
        plan = dequeue(self, queue, *args)
        return _with_receive_span(plan, queue) if tracing.is_on() else plan

    return wrapper


def trace_settle(how: str) -> Callable[[Settle[T]], Settle[T]]:
    """For `complete` and `release`, of messages, and `fail`, of one."""

    def decorate(settle: Settle[T]) -> Settle[T]:
        @wraps(settle)
        def wrapper(self: Any, message_or_messages: Any, *args: Any) -> Plan[T]:
            plan = settle(self, message_or_messages, *args)
            messages = [message_or_messages] if isinstance(message_or_messages, LeasedMessage) else message_or_messages
            return _with_settle_span(plan, how, messages) if tracing.is_on() and messages else plan

        return wrapper

    return decorate


def _with_send_span(
    enqueue: Callable[[Iterable[NewMessage]], Plan[list[EnqueueResult]]], queue: str, messages: Iterable[NewMessage]
) -> Plan[list[EnqueueResult]]:
    from tickwheel.telemetry import spans

    def with_trace_context(pairs: dict[str, str]) -> Iterator[NewMessage]:
        for new in messages:
            yield spans.with_trace_context(new, pairs) if isinstance(new, NewMessage) else new

    with spans.sending(queue) as span:
        results = yield from enqueue(with_trace_context(spans.current_trace_pairs()))
        spans.record_messages(span, [result.id for result in results])
        return results


def _with_receive_span(plan: Plan[list[M]], queue: str) -> Plan[list[M]]:
    from tickwheel.telemetry import spans

    since_ns = time.time_ns()
    messages = yield from plan
    if messages:
        spans.record_receive(queue, messages, since_ns)
    return messages


def _with_settle_span(plan: Plan[T], how: str, messages: Sequence[LeasedMessage]) -> Plan[T]:
    from tickwheel.telemetry import spans

    check_leased(f"{how}_many", messages)
    with spans.settling(how, messages[0].queue, messages):
        return (yield from plan)
