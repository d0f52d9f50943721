"""Queue selectors: choose the queue from which a worker takes its next batches, by weighted lotteries or by priority.

`select_queue` of a selector is a generator. It yields a queue to ask whether the queue has work, receives the answer
from ``send``, and returns its choice. So the same selector serves threads, asyncio tasks and simulations. A selector
that needs no answers may return a queue without being a generator. To answer, a worker tries to lease a batch from
the queue. If the selector then returns another queue, the worker releases this batch. So a selector should return the
queue for which it received True. While the worker knows that a queue is empty, the answer is False without a try. If a
selector has asked about all queues and all are empty, the worker waits for the messages of all queues, and then calls
`select_queue` again. Otherwise, the worker waits for the messages of the returned queue.

The reduced lottery is that of Nextdoor's Taskworker (ndkale). No queue starves: let w be the weight of a queue with
work, and W the sum of all weights. If a drawn queue is empty, it is removed and the draw is repeated. So the queue with
work wins a turn with a probability of at least w/W. Its mean wait is at most W/w turns, and the wait is longer than n
turns with a probability of at most (1 - w/W)^n. In a turn, a worker takes at most ``iterations`` batches from the queue
that has won. While all queues have work, each queue's share of the turns is its share of the tickets.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from tickwheel.errors import InvalidArgument
from tickwheel.tasks.task_queue import MAX_WEIGHT as MOST_WEIGHT, check_weight

__all__ = [
    "MOST_WEIGHT",
    "SELECTORS",
    "HighestPriorityFirst",
    "HighestPriorityLottery",
    "Lottery",
    "QueueSelector",
    "Random",
    "ReducedLottery",
    "Selection",
    "Weighted",
    "check_weight",
    "selected",
]


class Weighted(Protocol):
    """A queue with its tickets in the lottery."""

    @property
    def name(self) -> str: ...

    @property
    def weight(self) -> int:
        """The number of tickets, 1 to 100."""


Q = TypeVar("Q", bound=Weighted)
Selection = Generator[Q, bool, Q]


class QueueSelector(ABC, Generic[Q]):
    """Base class of selectors. Derive from it, and pass the class to the worker by ``--selector module:Class``."""

    def __init__(self, queues: Iterable[Q], rng: random.Random | None = None) -> None:
        """Raises InvalidArgument if there is no queue, or if a weight is not a whole number from 1 to 100."""
        self.queues = tuple(queues)
        self.rng = random.Random() if rng is None else rng
        if not self.queues:
            raise InvalidArgument("a worker must have at least one queue to take messages from")
        for queue in self.queues:
            check_weight(queue.name, queue.weight)

    @abstractmethod
    def select_queue(self) -> Selection[Q] | Q:
        """Return the queue from which the worker takes its next batches."""

    def draw(self, pool: Sequence[Q]) -> Q:
        """Return a random queue of the pool. The weight of a queue is its number of tickets."""
        return self.rng.choices(pool, [queue.weight for queue in pool])[0]

    def reduced(self, queues: Iterable[Q]) -> Selection[Q]:
        """Draw from ``queues`` until a drawn queue has work. If all are empty, draw from all queues of the worker."""
        pool = list(queues)
        while pool:
            drawn = self.draw(pool)
            if (yield drawn):
                return drawn
            pool.remove(drawn)
        return self.draw(self.queues)


class ReducedLottery(QueueSelector[Q]):
    """The default. Draw until a drawn queue has work. If all are empty, wait for all of them."""

    def select_queue(self) -> Selection[Q]:
        return (yield from self.reduced(self.queues))


class Lottery(QueueSelector[Q]):
    """Draw once, and wait for messages of the drawn queue alone if it is empty."""

    def select_queue(self) -> Q:
        return self.draw(self.queues)


class HighestPriorityFirst(QueueSelector[Q]):
    """Choose the heaviest queue that has work. A queue starves while a heavier one has work."""

    def select_queue(self) -> Selection[Q]:
        by_weight = sorted(self.queues, key=lambda queue: -queue.weight)
        for queue in by_weight:
            if (yield queue):
                return queue
        return by_weight[0]


class HighestPriorityLottery(QueueSelector[Q]):
    """Choose the heaviest queue while it has work, else run a reduced lottery of the others.

    The others starve while the heaviest queue has work.
    """

    def select_queue(self) -> Selection[Q]:
        heaviest = max(self.queues, key=lambda queue: queue.weight)
        if (yield heaviest):
            return heaviest
        return (yield from self.reduced(queue for queue in self.queues if queue is not heaviest))


class Random(QueueSelector[Q]):
    """Choose any queue with the same probability. Weights have no effect."""

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
    """Return the queue that the selector chooses. ``has_work`` returns whether a queue has work."""
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


# The public name of `select`.
selected = select
