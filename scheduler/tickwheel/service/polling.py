"""Dequeue calls that do not wait, as they come again and again to queues that are empty: one of them looks for all."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from tickwheel.errors import TickwheelError, Unavailable
from tickwheel.message import LeasedMessage
from tickwheel.operations.dequeue import Dequeue
from tickwheel.service.grouping import Grouping

Found = list[LeasedMessage]
# An answer that there is nothing may come a little later: it is the cheaper the more have it.
_LINGER_S: Final = 0.006
# So many lines are kept; then those where nobody is waiting are forgotten.
_LINES_MOST: Final = 1_000


class Polling:
    """Of one namespace."""

    def __init__(self, take: Callable[[Dequeue], Awaitable[Found]]) -> None:
        self._take = take
        self._lines: dict[tuple[str, bytes], Grouping[Dequeue, Found | BaseException]] = {}

    async def take(self, asked: Dequeue) -> Found:
        """What the call is given. Raises as `Queue.dequeue` does."""
        line = self._lines.get(asked.of)
        if line is None:
            if len(self._lines) >= _LINES_MOST:
                self._lines = {of: each for of, each in self._lines.items() if each.is_busy}
            line = self._lines[asked.of] = Grouping(self._send, len, _LINGER_S)
        found = await line.add(asked)
        if isinstance(found, BaseException):
            raise found
        return found

    async def _send(self, group: list[Dequeue]) -> Sequence[Found | BaseException]:
        first, *others = group
        found: Found | TickwheelError
        try:
            found = await self._take(first)
        except Unavailable:
            raise
        except TickwheelError as error:
            # It may be of this one's request.
            found = error
        if found == []:
            # All of them had asked before the first one looked, and for the same: there is nothing for them, either.
            return [[] for _ in group]
        # What one of them is refused is no other's: they hold messages by now.
        return [found, *await asyncio.gather(*map(self._take, others), return_exceptions=True)]
