"""Coalesces non-waiting dequeue calls of a caller on empty queues: one check of the queue answers all of them.

The polls of different callers share no check: a check that reads many shards waits for its turn behind the other reads
of its caller (`fair_limit.SizedTurns`).
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from tickwheel.model.message import LeasedMessage
from tickwheel.operations.dequeue import Dequeue
from tickwheel.service.batching.micro_batcher import MicroBatcher, drop_idle
from tickwheel.service.call_limits import PLACE

# An "empty" answer may be delayed by up to 6 ms, so that more calls share one check.
_LINGER_S: Final = 0.006
# Each caller has a batcher for each pair of queue and filter. If this number of batchers exists, the idle ones are
# dropped before another one is added.
_MAX_BATCHERS: Final = 1_000


class PollCoalescer:
    """Coalesces the polls of one namespace."""

    def __init__(
        self, run: Callable[[Any], Awaitable[Any]], dequeue: Callable[[Dequeue], Awaitable[list[LeasedMessage]]]
    ) -> None:
        """``run`` runs the plan of a check, and ``dequeue`` runs a dequeue."""
        self._run = run
        self._dequeue = dequeue
        self._batchers: dict[tuple[str, tuple[str, bytes]], MicroBatcher[Dequeue, bool]] = {}

    async def dequeue(self, request: Dequeue) -> list[LeasedMessage]:
        """Return the leased messages of the call. Raises as `Queue.dequeue` does."""
        key = PLACE.get()[0], request.coalescing_key
        batcher = self._batchers.get(key)
        if batcher is None:
            drop_idle(self._batchers, _MAX_BATCHERS)
            batcher = self._batchers[key] = MicroBatcher(self._probe, len, _LINGER_S)
        if not await batcher.submit(request):
            return []
        return await self._dequeue(request)

    async def _probe(self, group: list[Dequeue]) -> Sequence[bool]:
        # All calls of the group started before this check, for the same queue and filter. If the queue may have
        # messages, each call then runs its own dequeue.
        may_be_there: bool = await self._run(group[0].may_have_messages())
        return [may_be_there] * len(group)
