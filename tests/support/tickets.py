"""Queues for the selectors of workers, and their shares."""

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class Tickets:
    """A queue with its tickets in the lottery."""

    name: str
    weight: int = 50


def shares(queues: Collection[Tickets]) -> dict[str, float]:
    """Return the share of each queue of the tickets of all these queues, by name."""
    return {queue.name: queue.weight / sum(other.weight for other in queues) for queue in queues}
