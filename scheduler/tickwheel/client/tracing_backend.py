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


def sending(enqueue: Enqueue) -> Enqueue:
    """For `enqueue_many`: the messages carry the span's context."""

    @wraps(enqueue)
    def sent(self: Any, queue: str, messages: Iterable[NewMessage]) -> Plan[list[EnqueueResult]]:
        if not tracing.is_on() or not isinstance(messages, Iterable):
            return enqueue(self, queue, messages)
        return _sent(lambda given: enqueue(self, queue, given), queue, messages)

    return sent


def receiving(dequeue: Dequeue[M]) -> Dequeue[M]:
    """For `dequeue`: a span for each call that finds messages, linked to those that enqueued them."""

    @wraps(dequeue)
    def received(self: Any, queue: str, *args: Any) -> Plan[list[M]]:
        plan = dequeue(self, queue, *args)
        return _received(plan, queue) if tracing.is_on() else plan

    return received


def settling(how: str) -> Callable[[Settle[T]], Settle[T]]:
    """For `complete` and `release`, of messages, and `fail`, of one."""

    def around(settle: Settle[T]) -> Settle[T]:
        @wraps(settle)
        def settled(self: Any, given: Any, *args: Any) -> Plan[T]:
            plan = settle(self, given, *args)
            messages = [given] if isinstance(given, LeasedMessage) else given
            return _settled(plan, how, messages) if tracing.is_on() and messages else plan

        return settled

    return around


def _sent(
    enqueue: Callable[[Iterable[NewMessage]], Plan[list[EnqueueResult]]], queue: str, messages: Iterable[NewMessage]
) -> Plan[list[EnqueueResult]]:
    from tickwheel.telemetry import spans

    def carrying(pairs: dict[str, str]) -> Iterator[NewMessage]:
        for new in messages:
            yield spans.carrying(new, pairs) if isinstance(new, NewMessage) else new

    with spans.sending(queue) as span:
        results = yield from enqueue(carrying(spans.pairs()))
        spans.count(span, [result.id for result in results])
        return results


def _received(plan: Plan[list[M]], queue: str) -> Plan[list[M]]:
    from tickwheel.telemetry import spans

    since_ns = time.time_ns()
    messages = yield from plan
    if messages:
        spans.received(queue, messages, since_ns)
    return messages


def _settled(plan: Plan[T], how: str, messages: Sequence[LeasedMessage]) -> Plan[T]:
    from tickwheel.telemetry import spans

    check_leased(f"{how}_many", messages)
    with spans.settling(how, messages[0].queue, messages):
        return (yield from plan)
