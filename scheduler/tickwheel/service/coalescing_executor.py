"""Plans of concurrent calls share round trips to the server: what each sends stays its own, and so does its answer.

A script call stays one, with its session and its token. What only reads, and is the same for many, is read once for all
of them: each had asked by then, so the answer is of a moment within each of their calls.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tickwheel.errors import TickwheelError, Unavailable
from tickwheel.plan import Command, Reply, Request
from tickwheel.redis.asyncio_executor import AsyncIO
from tickwheel.service.micro_batcher import Grouping

# A round that asks for more goes alone, and so many at most go together: nobody waits long behind others.
_REQUESTS_MOST, _ARGUMENTS_MOST, _ROUNDS_MOST = 4, 64, 64
_READS: Final = {"EXISTS", "GET", "HGET", "HMGET", "ZRANGE"}


@dataclass(slots=True)
class _Asked:
    """A round of one plan; see `AsyncIO.round`."""

    requests: list[Request]
    has_done: bool


class TogetherIO(AsyncIO):
    """Runs plans as `AsyncIO` does; small rounds for one server go with those of other plans."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        # For what is grouped before it comes here.
        self.apart = AsyncIO(*given)
        self._lines: dict[str, Grouping[_Asked, list[Reply] | BaseException]] = {}

    async def round(self, requests: list[Request], has_done: bool = False, partly: bool = False) -> list[Reply]:
        server = None if partly else self._server(requests)
        if server is None:
            return await self.apart.round(requests, has_done, partly)
        line = self._lines.get(server)
        if line is None:
            line = self._lines[server] = Grouping(self._send_together, _fitting)
        replies = await line.add(_Asked(requests, has_done))
        if isinstance(replies, BaseException):
            raise replies
        return replies

    def _server(self, requests: list[Request]) -> str | None:
        """The server that a small round is for; None for a round that goes alone."""
        large = len(requests) > _REQUESTS_MOST or any(
            request.call is not None and len(request.call.args) > _ARGUMENTS_MOST for request in requests
        )
        # To wait for replicas would hold up all that is behind it.
        if large or self._replicas:
            return None
        servers = {self._servers.topology.server(request.shard) for request in requests}
        return servers.pop() if len(servers) == 1 else None

    async def _send_together(self, group: list[_Asked]) -> Sequence[list[Reply] | BaseException]:
        sent: list[Request] = []
        reads: dict[tuple[int, Command], int] = {}
        places = [[_place(request, sent, reads) for request in asked.requests] for asked in group]
        try:
            replies = await self.apart.round(sent, any(asked.has_done for asked in group))
        except Unavailable:
            raise
        except TickwheelError:
            # Whose it is shows when each is sent alone: again, as any call may be.
            alone = [self.apart.round(asked.requests, asked.has_done) for asked in group]
            return await asyncio.gather(*alone, return_exceptions=True)
        return [[replies[place] for place in of_one] for of_one in places]


def _fitting(waiting: Sequence[_Asked]) -> int:
    return min(len(waiting), _ROUNDS_MOST)


def _place(request: Request, sent: list[Request], reads: dict[tuple[int, Command], int]) -> int:
    """Where the request's reply will be: what is read for another is not sent again."""
    place = len(sent)
    if request.command is not None and request.command[0] in _READS:
        place = reads.setdefault((request.shard, request.command), place)
    if place == len(sent):
        sent.append(request)
    return place
