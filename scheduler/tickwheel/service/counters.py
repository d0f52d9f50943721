"""What one process of the service counts: plain numbers, so that a call costs next to nothing for them; `metrics` tells
them. All of it happens on one event loop.
"""

from collections.abc import Callable
from typing import Any, Final

from tickwheel.rpc.methods import METHODS
from tickwheel.telemetry.histogram import SECONDS, Histogram
from tickwheel.v1 import message_pb2 as messages

# Upper bounds of how many messages one script call enqueued.
GROUP_SIZE_BUCKETS: Final = (1, 2, 5, 10, 20, 50, 100, 250, 1_000)
# So many queues are told by name, those that were used first; no queue can have the name of the rest.
QUEUES: Final = 1_000
OTHER_QUEUES: Final = ("(others)", "(others)")


class MethodCounters:
    """Of one method: how many are under way, how many ended with each code, and how long they took."""

    __slots__ = ("codes", "durations", "in_flight")

    def __init__(self) -> None:
        self.in_flight = 0
        self.codes: dict[str, int] = {}
        self.durations = Histogram(SECONDS)

    def record_end(self, code: str, seconds: float) -> None:
        self.in_flight -= 1
        self.codes[code] = self.codes.get(code, 0) + 1
        self.durations.add(seconds)


class MessageCounter:
    """Of one thing that is done to messages: to how many, by namespace and queue."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], int] = {}

    def add(self, namespace: str, queue: str, count: int) -> None:
        key = (namespace or "tw", queue)
        if key not in self.counts and len(self.counts) >= QUEUES:
            key = OTHER_QUEUES
        self.counts[key] = self.counts.get(key, 0) + count


# Of the methods that move messages: what they do, and to how many, by what was asked and answered.
MESSAGE_METRICS: Final[dict[str, tuple[str, Callable[[Any, Any], int]]]] = {
    "Enqueue": ("enqueued", lambda _, answer: answer.result.created),
    "EnqueueBatch": ("enqueued", lambda _, answer: sum(result.created for result in answer.results)),
    "EnqueueStream": ("enqueued", lambda _, answer: answer.created),
    "Dequeue": ("delivered", lambda _, answer: len(answer.deliveries)),
    "DequeueStream": ("delivered", lambda _, answer: len(answer.deliveries)),
    "Complete": ("completed", lambda request, answer: len(request.leases) - len(answer.lost)),
    "Fail": ("failed", lambda _, answer: sum(state != messages.STATE_UNSPECIFIED for state in answer.states)),
    "Release": ("released", lambda request, answer: len(request.leases) - len(answer.lost)),
    "Cancel": ("cancelled", lambda _, answer: sum(change.changed for change in answer.changes)),
}


class Counters:
    """Since the process was started."""

    def __init__(self) -> None:
        self.methods = {name: MethodCounters() for name in METHODS}
        self.messages = {action: MessageCounter() for action, _ in MESSAGE_METRICS.values()}
        self.group_sizes = Histogram(GROUP_SIZE_BUCKETS)
