"""Cache the heads of queues: where the most urgent messages were a moment ago, and where there were none."""

import time
from collections.abc import Iterable
from math import inf

from tickwheel.plan import Request

# A head older than this is not used.
_HEADS_S = 0.1
# The scripts that may make a message ready, and those that in an exclusive queue free a value for the next.
_READY = frozenset({"enqueue", "fail", "release", "reschedule", "redrive"})
_READY_EXCLUSIVE = _READY | {"complete", "cancel"}


class HeadCache:
    """The heads of the queues of one namespace, as the last replies had them. Safe to use from many threads."""

    def __init__(self) -> None:
        # Queues that had nothing ready when they were last asked, or nothing with certain pairs.
        self.known_empty: set[tuple[str, bytes]] = set()
        # Of each queue by shard: the most urgent deadline, and the monotonic time at which it was heard.
        self._heads: dict[str, dict[int, tuple[int | None, float]]] = {}

    def record(self, queue: str, shard: int, deadline: int | None) -> None:
        """Remember the most urgent deadline of a shard; None: nothing is ready there."""
        self._heads.setdefault(queue, {})[shard] = (deadline, time.monotonic())

    def recent(self, queue: str) -> dict[int, int | None]:
        """Return the most urgent deadline of each shard that was heard of in the last 100 ms."""
        if queue not in self._heads:
            return {}
        since = time.monotonic() - _HEADS_S
        # A copy, because other threads record heads, too.
        recorded = self._heads[queue].copy()
        return {shard: deadline for shard, (deadline, heard) in recorded.items() if heard >= since}

    def forget_changed(self, queue: str, exclusive: bool, requests: Iterable[Request]) -> None:
        """Forget the heads of shards on which these requests may make another message the most urgent."""
        if queue in self._heads:
            scripts = _READY_EXCLUSIVE if exclusive else _READY
            for request in requests:
                if request.call is not None and request.call.script.name in scripts:
                    self._heads[queue][request.shard] = (None, -inf)
