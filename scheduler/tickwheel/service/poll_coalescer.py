"""Dequeue calls that do not wait, as they come again and again to queues that are empty: one look is for all."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from tickwheel.model.message import LeasedMessage
from tickwheel.operations.dequeue import Dequeue
from tickwheel.service.micro_batcher import MicroBatcher

# An answer that there is nothing may come a little later: it is the cheaper the more have it.
_LINGER_S: Final = 0.006
# So many lines are kept; then those where nobody is waiting are forgotten.
_MAX_BATCHERS: Final = 1_000


class PollCoalescer:
    """Of one namespace."""

    def __init__(self, run: Callable[[Any], Awaitable[Any]]) -> None:
        self._run = run
        self._batchers: dict[tuple[str, bytes], MicroBatcher[Dequeue, bool]] = {}

    async def dequeue(self, request: Dequeue) -> list[LeasedMessage]:
        """What the call is given. Raises as `Queue.dequeue` does."""
        batcher = self._batchers.get(request.coalescing_key)
        if batcher is None:
            if len(self._batchers) >= _MAX_BATCHERS:
                self._batchers = {key: item for key, item in self._batchers.items() if item.is_busy}
            batcher = self._batchers[request.coalescing_key] = MicroBatcher(self._probe, len, _LINGER_S)
        if not await batcher.submit(request):
            return []
        messages: list[LeasedMessage] = await self._run(request.plan(LeasedMessage))
        return messages

    async def _probe(self, group: list[Dequeue]) -> Sequence[bool]:
        # All of them had asked before, and for the same. Where something is, each asks for itself.
        may_be_there: bool = await self._run(group[0].may_have_messages())
        return [may_be_there] * len(group)
