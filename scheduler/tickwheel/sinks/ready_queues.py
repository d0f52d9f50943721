"""The queues of a shard that may have due messages for their sinks, and their turns."""

from collections.abc import Callable, Container, Iterable


class ReadyQueues:
    """Queues in the order in which they became ready. Those of confirmed sinks and the others take turns.

    So if many sinks are new or reject their messages, a queue of a confirmed sink does not wait until all queues of
    these sinks had their turns. If the dequeue of a queue fails, all other queues have as many turns as are ready, and
    then this queue has its next one. So a queue whose dequeue always fails does not delay the others.
    """

    def __init__(self, is_confirmed: Callable[[str], bool]) -> None:
        """``is_confirmed`` returns whether the sink of a queue is confirmed (`ConfirmedSinks`)."""
        self._is_confirmed = is_confirmed
        # By whether the sink is confirmed.
        self._queues: dict[bool, dict[str, None]] = {True: {}, False: {}}
        self._turn = True
        # Queues whose last dequeue has failed.
        self._failed: dict[str, None] = {}
        # The turns of others before the next turn of a failed queue. None if they are not counted yet.
        self._turns_before_failed: int | None = None

    def add(self, queues: Iterable[str]) -> None:
        """Add queues. A queue that is ready already keeps its place."""
        for queue in queues:
            if queue in self._failed:
                continue
            is_confirmed = self._is_confirmed(queue)
            self._queues[not is_confirmed].pop(queue, None)
            self._queues[is_confirmed][queue] = None

    def add_failed(self, queue: str) -> None:
        """Add a queue whose dequeue has failed, behind the queues that are ready at the next `take`."""
        self._failed[queue] = None
        self._turns_before_failed = None

    def keep(self, queues: Container[str]) -> None:
        """Remove all other queues."""
        for ready in (*self._queues.values(), self._failed):
            for queue in [queue for queue in ready if queue not in queues]:
                del ready[queue]

    def take(self) -> str | None:
        """Remove and return the queue whose turn it is; None if no queue is ready."""
        if not self._failed:
            return self._take_other()
        if self._turns_before_failed is None:
            self._turns_before_failed = sum(map(len, self._queues.values()))
        queue = self._take_other() if self._turns_before_failed else None
        if queue is None:
            self._turns_before_failed = None
            return _take_first(self._failed)
        self._turns_before_failed -= 1
        return queue

    def _take_other(self) -> str | None:
        """Take a queue that has not failed."""
        for is_confirmed in (self._turn, not self._turn):
            if (queue := _take_first(self._queues[is_confirmed])) is not None:
                self._turn = not is_confirmed
                return queue
        return None


def _take_first(queues: dict[str, None]) -> str | None:
    queue = next(iter(queues), None)
    if queue is not None:
        del queues[queue]
    return queue
