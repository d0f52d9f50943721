"""From which queue a worker takes its next batches: lotteries by weight, and what else there is.

`select_queue` of a selector is a generator: it yields a queue to ask whether that has work, is sent the answer, and
returns its choice; so the same selector serves threads, tasks and simulations. One that needs no answers may return a
queue without ever yielding. A worker answers by taking a batch from the queue that it was asked for, so a selector that
has heard that a queue has work returns that queue.

The reduced lottery is that of Nextdoor's Taskworker (ndkale). No queue starves in it: one of weight w among queues of
the weights W in all is drawn with a chance of at least w/W, whatever the others hold: empty ones only leave the draw.
So it is expected within W/w turns, waits more than n turns with a chance of at most (1 - w/W)^n, and a turn is at most
the batches that one queue is given. Of a queue that has work all the time the share of turns is its share of the
tickets.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from tickwheel.errors import InvalidArgument

MAX_WEIGHT = 100


class Weighted(Protocol):
    """What is drawn: a queue with its tickets."""

    @property
    def name(self) -> str: ...

    @property
    def weight(self) -> int:
        """Its tickets, 1 to 100."""


Q = TypeVar("Q", bound=Weighted)
Selection = Generator[Q, bool, Q]


class QueueSelector(ABC, Generic[Q]):
    """Derive from it, and give the class to the worker by ``--selector module:Class``."""

    def __init__(self, queues: Iterable[Q], rng: random.Random | None = None) -> None:
        """Raises InvalidArgument without a queue, or for a weight that is none."""
        self.queues = tuple(queues)
        self.rng = random.Random() if rng is None else rng
        if not self.queues:
            raise InvalidArgument("a worker must have at least one queue to take messages from")
        for queue in self.queues:
            check_weight(queue.name, queue.weight)

    @abstractmethod
    def select_queue(self) -> Selection[Q] | Q:
        """The queue that the worker is to take its next batches from."""

    def draw(self, pool: Sequence[Q]) -> Q:
        """One of the pool, by lot: its weight is its number of tickets."""
        return self.rng.choices(pool, [queue.weight for queue in pool])[0]

    def reduced(self, queues: Iterable[Q]) -> Selection[Q]:
        """Draw of these, leaving out what turns out to be empty; where all are, one draw over all of the worker's."""
        pool = list(queues)
        while pool:
            drawn = self.draw(pool)
            if (yield drawn):
                return drawn
            pool.remove(drawn)
        return self.draw(self.queues)


class ReducedLottery(QueueSelector[Q]):
    """Draw, leaving out what turns out to be empty; where all are, one draw over all, to wait there. The default."""

    def select_queue(self) -> Selection[Q]:
        return (yield from self.reduced(self.queues))


class Lottery(QueueSelector[Q]):
    """Draw once, and wait at what was drawn even if it is empty."""

    def select_queue(self) -> Q:
        return self.draw(self.queues)


class HighestPriorityFirst(QueueSelector[Q]):
    """The heaviest queue that has work. Starves the light ones for as long as a heavier one is not empty."""

    def select_queue(self) -> Selection[Q]:
        by_weight = sorted(self.queues, key=lambda queue: -queue.weight)
        for queue in by_weight:
            if (yield queue):
                return queue
        return by_weight[0]


class HighestPriorityLottery(QueueSelector[Q]):
    """The heaviest queue while it has work, then a reduced lottery of the others, which starve until then."""

    def select_queue(self) -> Selection[Q]:
        heaviest = max(self.queues, key=lambda queue: queue.weight)
        if (yield heaviest):
            return heaviest
        return (yield from self.reduced(queue for queue in self.queues if queue is not heaviest))


class Random(QueueSelector[Q]):
    """Any queue, whatever its weight."""

    def select_queue(self) -> Q:
        return self.rng.choice(self.queues)


SELECTORS: dict[str, type[QueueSelector[Weighted]]] = {
    "reduced-lottery": ReducedLottery,
    "lottery": Lottery,
    "highest-priority-first": HighestPriorityFirst,
    "highest-priority-lottery": HighestPriorityLottery,
    "random": Random,
}


def select(selector: QueueSelector[Q], has_work: Callable[[Q], bool]) -> Q:
    """The selector's choice, where ``has_work`` answers what it asks."""
    selection = selector.select_queue()
    if not isinstance(selection, Generator):
        return selection
    try:
        candidate = next(selection)
        while True:
            candidate = selection.send(has_work(candidate))
    except StopIteration as chosen:
        choice: Q = chosen.value
        return choice


def check_weight(name: str, weight: int) -> None:
    """Raises InvalidArgument for a weight that is not a whole number from 1 to 100."""
    if isinstance(weight, bool) or not isinstance(weight, int) or not 1 <= weight <= MAX_WEIGHT:
        raise InvalidArgument(
            f"the weight of queue {name!r} must be a whole number from 1 to {MAX_WEIGHT}, not {weight!r}"
        )
