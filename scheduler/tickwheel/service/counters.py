"""What one process of the service counts: plain numbers, so that a call costs next to nothing for them; `metrics` tells
them. All of it happens on one event loop.
"""

from typing import Final

from tickwheel.rpc.methods import METHODS
from tickwheel.service.method_table import METHOD_ROWS
from tickwheel.telemetry.histogram import SECONDS, Histogram

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


class Counters:
    """Since the process was started."""

    def __init__(self) -> None:
        self.methods = {name: MethodCounters() for name in METHODS}
        self.messages = {row.action: MessageCounter() for row in METHOD_ROWS if row.action}
        self.group_sizes = Histogram(GROUP_SIZE_BUCKETS)
