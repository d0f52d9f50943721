"""Counters of one process of the service, in plain numbers, so that counting costs a call almost nothing. `metrics`
exports them. Only the event loop's thread updates them.
"""

from dataclasses import dataclass, field
from typing import Final

from tickwheel.rpc.methods import METHODS
from tickwheel.service.method_table import METHOD_ROWS
from tickwheel.telemetry.histogram import SECONDS, Histogram

# Upper bounds of the buckets for the number of messages that one script call enqueues.
GROUP_SIZE_BUCKETS: Final = (1, 2, 5, 10, 20, 50, 100, 250, 1_000)
# The first queues in use, up to this number, are counted separately. All others are counted under one name, which no
# queue can have.
QUEUES: Final = 1_000
OTHER_QUEUES: Final = ("(others)", "(others)")


@dataclass(slots=True)
class MethodCounters:
    """Counters of one RPC: the calls in flight, the number of ended calls for each gRPC code, and their durations."""

    in_flight: int = 0
    codes: dict[str, int] = field(default_factory=dict)
    durations: Histogram = field(default_factory=lambda: Histogram(SECONDS))

    def record_end(self, code: str, seconds: float) -> None:
        self.in_flight -= 1
        self.codes[code] = self.codes.get(code, 0) + 1
        self.durations.add(seconds)


@dataclass(slots=True)
class MessageCounter:
    """Counts the messages to which one action applied, such as `enqueued`, by namespace and queue."""

    counts: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, namespace: str, queue: str, count: int) -> None:
        # A call that concerned no message may name a queue that does not exist. Such names must not fill the places.
        if not count:
            return
        key = (namespace or "tw", queue)
        if key not in self.counts and len(self.counts) >= QUEUES:
            key = OTHER_QUEUES
        self.counts[key] = self.counts.get(key, 0) + count


class Counters:
    """All counters since the start of the process."""

    def __init__(self) -> None:
        self.methods = {name: MethodCounters() for name in METHODS}
        self.messages = {row.action: MessageCounter() for row in METHOD_ROWS if row.action}
        self.group_sizes = Histogram(GROUP_SIZE_BUCKETS)
