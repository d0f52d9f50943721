"""A cache of heads and of empty queues. A *head* is the most urgent deadline of a queue on one shard."""

import time
from collections.abc import Iterable
from math import inf

from tickwheel.plan import Request

# A head older than this is not used.
_HEADS_S = 0.1
# The maximum number of queues with heads. Before one more queue is added, all heads are dropped: the next dequeue of
# each queue reads them again.
_QUEUES_MAX = 1_000
# Scripts that may make a message ready. In an exclusive queue, freeing a value makes the next message ready.
_READY = frozenset({"enqueue", "fail", "release", "reschedule", "redrive"})
_READY_EXCLUSIVE = _READY | {"complete", "cancel"}


class HeadCache:
    """The heads of the queues of one namespace, as the last replies reported them. Thread-safe."""

    def __init__(self) -> None:
        # Pairs of a queue and a packed filter. The last dequeue found no message that matches the filter or, if the
        # filter is b"", no deliverable message at all.
        self.known_empty: set[tuple[str, bytes]] = set()
        # By queue and shard: the most urgent deadline, and the monotonic time of the reply.
        self._heads: dict[str, dict[int, tuple[int | None, float]]] = {}

    def record(self, queue: str, shard: int, deadline: int | None) -> None:
        """Record the most urgent deadline of a shard; None if nothing is ready there."""
        if queue not in self._heads and len(self._heads) >= _QUEUES_MAX:
            self._heads.clear()
        self._heads.setdefault(queue, {})[shard] = (deadline, time.monotonic())

    def recent(self, queue: str) -> dict[int, int | None]:
        """Return the head of each shard that replied in the last 100 ms; None if nothing was ready on the shard."""
        recorded = self._heads.get(queue)
        if recorded is None:
            return {}
        since = time.monotonic() - _HEADS_S
        # A copy, because other threads record heads, too.
        recorded = recorded.copy()
        return {shard: deadline for shard, (deadline, received) in recorded.items() if received >= since}

    def forget_changed(self, queue: str, exclusive: bool, requests: Iterable[Request]) -> None:
        """Forget the heads of shards on which these requests may make another message the most urgent."""
        recorded = self._heads.get(queue)
        if recorded is not None:
            scripts = _READY_EXCLUSIVE if exclusive else _READY
            for request in requests:
                if request.call is not None and request.call.script.name in scripts:
                    recorded[request.shard] = (None, -inf)

    def forget_empty(self, queue: str) -> None:
        """Forget that nothing is deliverable in a queue: messages were announced or found."""
        self.known_empty.discard((queue, b""))

    def forget(self, queue: str) -> None:
        """Forget the heads of a queue that does not exist."""
        self._heads.pop(queue, None)
