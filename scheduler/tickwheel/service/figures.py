"""What one process of the service counts: plain numbers, so that a call costs next to nothing for them; `metrics` tells
them. All of it happens on one event loop.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from tickwheel.v1 import message_pb2 as messages

# Upper bounds: of seconds that a call took, and of messages that one script call enqueued.
SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
GROUP: Final = (1, 2, 5, 10, 20, 50, 100, 250, 1_000)
# So many queues are told by name, those that were used first; no queue can have the name of the rest.
QUEUES: Final = 1_000
OTHERS: Final = ("(others)", "(others)")


class Histogram:
    """How often a value was up to each bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Figures:
    """Since the process was started."""

    def __init__(self) -> None:
        # By method, by (method, code), and by (what was done, (namespace, queue)).
        self.in_flight: Counter[str] = Counter()
        self.durations: dict[str, Histogram] = {}
        self.calls: Counter[tuple[str, str]] = Counter()
        self.messages: Counter[tuple[str, tuple[str, str]]] = Counter()
        self.groups = Histogram(GROUP)
        self._queues: set[tuple[str, str]] = set()

    def began(self, method: str) -> None:
        """A call is under way."""
        self.in_flight[method] += 1

    def ended(self, method: str, code: str, seconds: float) -> None:
        """It was answered, with this code."""
        self.in_flight[method] -= 1
        self.calls[method, code] += 1
        durations = self.durations.get(method)
        if durations is None:
            durations = self.durations[method] = Histogram(SECONDS)
        durations.add(seconds)

    def done(self, done: str, namespace: str, queue: str, count: int) -> None:
        """So many messages of a queue were enqueued, delivered, completed, failed or cancelled."""
        named = (namespace or "tw", queue)
        if named not in self._queues:
            if len(self._queues) < QUEUES:
                self._queues.add(named)
            else:
                named = OTHERS
        self.messages[done, named] += count


# Of the methods that move messages: what was done, and to how many, by what was asked and answered.
DONE: Final[dict[str, tuple[str, Callable[[Any, Any], int]]]] = {
    "Enqueue": ("enqueued", lambda _, answer: answer.result.created),
    "EnqueueBatch": ("enqueued", lambda _, answer: sum(result.created for result in answer.results)),
    "EnqueueStream": ("enqueued", lambda _, answer: answer.created),
    "Dequeue": ("delivered", lambda _, answer: len(answer.deliveries)),
    "DequeueStream": ("delivered", lambda _, answer: len(answer.deliveries)),
    "Complete": ("completed", lambda asked, answer: len(asked.leases) - len(answer.lost)),
    "Fail": ("failed", lambda _, answer: sum(state != messages.STATE_UNSPECIFIED for state in answer.states)),
    "Cancel": ("cancelled", lambda _, answer: sum(change.changed for change in answer.changes)),
}
