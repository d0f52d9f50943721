"""The queues of a shard that may have due messages for their sinks, and their turns."""

from collections.abc import Callable, Iterable


class ReadyQueues:
    """Queues in the order in which they became ready. Those of confirmed sinks and the others take turns.

    So if many sinks are new or reject their messages, a queue of a confirmed sink does not wait until all queues of
    these sinks had their turns.
    """

    def __init__(self, is_confirmed: Callable[[str], bool]) -> None:
        """``is_confirmed`` returns whether the sink of a queue is confirmed (`ConfirmedSinks`)."""
        self._is_confirmed = is_confirmed
        # By whether the sink is confirmed.
        self._queues: dict[bool, dict[str, None]] = {True: {}, False: {}}
        self._turn = True

    def add(self, queues: Iterable[str]) -> None:
        """Add queues. A queue that is ready already keeps its place."""
        for queue in queues:
            is_confirmed = self._is_confirmed(queue)
            self._queues[not is_confirmed].pop(queue, None)
            self._queues[is_confirmed][queue] = None

    def clear(self) -> None:
        """Remove all queues."""
        for queues in self._queues.values():
            queues.clear()

    def take(self) -> str | None:
        """Remove and return the queue whose turn it is; None if no queue is ready."""
        for is_confirmed in (self._turn, not self._turn):
            queues = self._queues[is_confirmed]
            if queues:
                queue = next(iter(queues))
                del queues[queue]
                self._turn = not is_confirmed
                return queue
        return None
