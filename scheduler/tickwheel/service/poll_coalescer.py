"""Dequeue calls that do not wait, as they come again and again to queues that are empty: one look is for all."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from tickwheel.model.message import LeasedMessage
from tickwheel.operations.dequeue import Dequeue
from tickwheel.service.micro_batcher import Grouping

# An answer that there is nothing may come a little later: it is the cheaper the more have it.
_LINGER_S: Final = 0.006
# So many lines are kept; then those where nobody is waiting are forgotten.
_LINES_MOST: Final = 1_000


class Polling:
    """Of one namespace."""

    def __init__(self, run: Callable[[Any], Awaitable[Any]]) -> None:
        self._run = run
        self._lines: dict[tuple[str, bytes], Grouping[Dequeue, bool]] = {}

    async def take(self, asked: Dequeue) -> list[LeasedMessage]:
        """What the call is given. Raises as `Queue.dequeue` does."""
        line = self._lines.get(asked.of)
        if line is None:
            if len(self._lines) >= _LINES_MOST:
                self._lines = {of: each for of, each in self._lines.items() if each.is_busy}
            line = self._lines[asked.of] = Grouping(self._look, len, _LINGER_S)
        if not await line.add(asked):
            return []
        found: list[LeasedMessage] = await self._run(asked.plan(LeasedMessage))
        return found

    async def _look(self, group: list[Dequeue]) -> Sequence[bool]:
        # All of them had asked before, and for the same. Where something is, each asks for itself.
        may_be_there: bool = await self._run(group[0].look())
        return [may_be_there] * len(group)
