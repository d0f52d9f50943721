"""What one process of the service counts: plain numbers, so that a call costs next to nothing for them; `metrics` tells
them. All of it happens on one event loop.
"""

from collections.abc import Callable
from typing import Any, Final

from tickwheel.rpc.methods import METHODS
from tickwheel.telemetry.histogram import SECONDS, Histogram
from tickwheel.v1 import message_pb2 as messages

# Upper bounds of how many messages one script call enqueued.
GROUP: Final = (1, 2, 5, 10, 20, 50, 100, 250, 1_000)
# So many queues are told by name, those that were used first; no queue can have the name of the rest.
QUEUES: Final = 1_000
OTHERS: Final = ("(others)", "(others)")


class Calls:
    """Of one method: how many are under way, how many ended with each code, and how long they took."""

    __slots__ = ("codes", "in_flight", "took")

    def __init__(self) -> None:
        self.in_flight = 0
        self.codes: dict[str, int] = {}
        self.took = Histogram(SECONDS)

    def ended(self, code: str, seconds: float) -> None:
        self.in_flight -= 1
        self.codes[code] = self.codes.get(code, 0) + 1
        self.took.add(seconds)


class Moved:
    """Of one thing that is done to messages: to how many, by namespace and queue."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], int] = {}

    def add(self, namespace: str, queue: str, count: int) -> None:
        named = (namespace or "tw", queue)
        if named not in self.counts and len(self.counts) >= QUEUES:
            named = OTHERS
        self.counts[named] = self.counts.get(named, 0) + count


# Of the methods that move messages: what they do, and to how many, by what was asked and answered.
MOVES: Final[dict[str, tuple[str, Callable[[Any, Any], int]]]] = {
    "Enqueue": ("enqueued", lambda _, answer: answer.result.created),
    "EnqueueBatch": ("enqueued", lambda _, answer: sum(result.created for result in answer.results)),
    "EnqueueStream": ("enqueued", lambda _, answer: answer.created),
    "Dequeue": ("delivered", lambda _, answer: len(answer.deliveries)),
    "DequeueStream": ("delivered", lambda _, answer: len(answer.deliveries)),
    "Complete": ("completed", lambda asked, answer: len(asked.leases) - len(answer.lost)),
    "Fail": ("failed", lambda _, answer: sum(state != messages.STATE_UNSPECIFIED for state in answer.states)),
    "Release": ("released", lambda asked, answer: len(asked.leases) - len(answer.lost)),
    "Cancel": ("cancelled", lambda _, answer: sum(change.changed for change in answer.changes)),
}


class Figures:
    """Since the process was started."""

    def __init__(self) -> None:
        self.calls = {name: Calls() for name in METHODS}
        self.moved = {done: Moved() for done, _ in MOVES.values()}
        self.groups = Histogram(GROUP)
