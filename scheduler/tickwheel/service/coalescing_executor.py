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
from tickwheel.redis.asyncio_executor import AsyncRedisExecutor
from tickwheel.service.micro_batcher import MicroBatcher

# A round that asks for more goes alone, and so many at most go together: nobody waits long behind others.
_MAX_REQUESTS, _MAX_ARGUMENTS, _MAX_ROUNDS = 4, 64, 64
_READS: Final = {"EXISTS", "GET", "HGET", "HMGET", "ZRANGE"}


@dataclass(slots=True)
class _PlanRound:
    """A round of one plan; see `AsyncIO.round`."""

    requests: list[Request]
    has_done: bool


class CoalescingExecutor(AsyncRedisExecutor):
    """Runs plans as `AsyncIO` does; small rounds for one server go with those of other plans."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # For what is grouped before it comes here.
        self.uncoalesced = AsyncRedisExecutor(*args)
        self._batchers: dict[str, MicroBatcher[_PlanRound, list[Reply] | BaseException]] = {}

    async def round(
        self, requests: list[Request], already_applied: bool = False, allow_partial: bool = False
    ) -> list[Reply]:
        server = None if allow_partial else self._server(requests)
        if server is None:
            return await self.uncoalesced.round(requests, already_applied, allow_partial)
        batcher = self._batchers.get(server)
        if batcher is None:
            batcher = self._batchers[server] = MicroBatcher(self._send_group, _max_batch)
        replies = await batcher.submit(_PlanRound(requests, already_applied))
        if isinstance(replies, BaseException):
            raise replies
        return replies

    def _server(self, requests: list[Request]) -> str | None:
        """The server that a small round is for; None for a round that goes alone."""
        large = len(requests) > _MAX_REQUESTS or any(
            request.call is not None and len(request.call.args) > _MAX_ARGUMENTS for request in requests
        )
        # To wait for replicas would hold up all that is behind it.
        if large or self._replicas:
            return None
        servers = {self._servers.topology.server(request.shard) for request in requests}
        return servers.pop() if len(servers) == 1 else None

    async def _send_group(self, group: list[_PlanRound]) -> Sequence[list[Reply] | BaseException]:
        sent: list[Request] = []
        reads: dict[tuple[int, Command], int] = {}
        indexes = [[_assign_index(request, sent, reads) for request in item.requests] for item in group]
        try:
            replies = await self.uncoalesced.round(sent, any(item.has_done for item in group))
        except Unavailable:
            raise
        except TickwheelError:
            # Whose it is shows when each is sent alone: again, as any call may be.
            retries = [self.uncoalesced.round(item.requests, item.has_done) for item in group]
            return await asyncio.gather(*retries, return_exceptions=True)
        return [[replies[index] for index in row] for row in indexes]


def _max_batch(waiting: Sequence[_PlanRound]) -> int:
    return min(len(waiting), _MAX_ROUNDS)


def _assign_index(request: Request, sent: list[Request], reads: dict[tuple[int, Command], int]) -> int:
    """Where the request's reply will be: what is read for another is not sent again."""
    index = len(sent)
    if request.command is not None and request.command[0] in _READS:
        index = reads.setdefault((request.shard, request.command), index)
    if index == len(sent):
        sent.append(request)
    return index
