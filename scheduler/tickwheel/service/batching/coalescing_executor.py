"""Plans of concurrent calls share round trips to the server. Each plan still sends its own requests and gets its own
replies.

Script calls are never merged: each keeps its session and its lease token. A read-only command that several plans send
is executed once. All calls of these plans begin before the command is sent and end after its reply, so the reply is
current for each of them.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tickwheel.errors import TickwheelError, Unavailable
from tickwheel.model.queue_config import QueueConfig
from tickwheel.plan import (
    AwaitWakeup,
    BeginSearch,
    Command,
    ContinueWalk,
    Reply,
    Request,
    Round,
    Subscribe,
    SubscribeJointly,
    SubscribeToEnd,
)
from tickwheel.redis.asyncio_executor import AsyncRedisExecutor
from tickwheel.service.answer_limits import TURN
from tickwheel.service.batching.micro_batcher import MicroBatcher
from tickwheel.service.call_limits import PLACE
from tickwheel.service.fair_limit import SizedTurns
from tickwheel.storage.record import has_several_pairs

# With these limits, no plan waits long for other plans. A round with more requests, or a script call with more
# arguments, is sent separately. At most `_MAX_ROUNDS` rounds are coalesced.
_MAX_REQUESTS, _MAX_ARGUMENTS, _MAX_ROUNDS = 4, 64, 64
# To build and to send a read of as many keys takes the event loop as long as a request.
_KEYS_OF_A_REQUEST: Final = 8
_NO_WAIT: Final = nullcontext()
_READS: Final = {"EXISTS", "GET", "HGET", "HMGET", "ZRANGE"}
# Reads whose replies can be large. They are sent separately, so that no small call waits until such a reply is parsed.
_LARGE_READS: Final = {"HGETALL", "HSCAN", "XRANGE"}
# Scripts that may read some thousand index entries, which takes the server up to 4 ms. It executes all calls of a group
# before the calls of others. So such calls have groups of their own, with few calls each: the number depends on how
# much longer a group lasts than a group without such calls. If this is less than the first time, the next group may
# have one more. If it is more than the second time, the next group may have half as many.
_LONG_SCRIPTS: Final = {"depth", "purge"}
_LONG_CALLS_MIN, _LONG_CALLS_MAX = 4, 32
_SHORT_GROUP_S, _LONG_GROUP_S = 0.01, 0.02
# A longer group without long calls counts as this long, or as twice the average: one group that hangs does not show how
# long the others last.
_SHORT_GROUP_MAX_S: Final = 0.1


@dataclass(slots=True)
class _PlanRound:
    """A round of one plan: the arguments of `AsyncRedisExecutor.round`."""

    requests: list[Request]
    already_applied: bool
    long_calls: int


@dataclass(slots=True)
class _GroupSizes:
    """How long the groups without long calls of a server last on average, and how many long calls a group may have."""

    short_s: float = 0.0
    long_calls_max: int = _LONG_CALLS_MIN

    def on_short_group(self, seconds: float) -> None:
        self.short_s += (min(seconds, max(_SHORT_GROUP_MAX_S, 2 * self.short_s)) - self.short_s) / 8

    def on_long_group(self, calls: int, seconds: float) -> None:
        if seconds - self.short_s > _LONG_GROUP_S:
            self.long_calls_max = max(self.long_calls_max // 2, _LONG_CALLS_MIN)
        elif seconds - self.short_s < _SHORT_GROUP_S and calls >= self.long_calls_max:
            self.long_calls_max = min(self.long_calls_max + 1, _LONG_CALLS_MAX)

    def count(self, waiting: Sequence[_PlanRound]) -> int:
        """Return how many of the waiting rounds, from the front, the next group with long calls takes."""
        calls = 0
        for n, item in enumerate(waiting):
            calls += item.long_calls
            if n and calls > self.long_calls_max:
                return n
        return len(waiting)


class CoalescingExecutor(AsyncRedisExecutor):
    """Runs plans as `AsyncRedisExecutor` does, but coalesces small rounds of several plans to one server."""

    def __init__(self, *args: Any, turns: SizedTurns) -> None:
        """``turns``: those of the rounds with many requests."""
        super().__init__(*args)
        self._turns = turns
        # By server.
        self._group_sizes: dict[str, _GroupSizes] = {}
        # For plans that are already coalesced, such as those of `EnqueueBatcher`.
        self.uncoalesced = AsyncRedisExecutor(*args)
        # By server, and whether their rounds have long calls.
        self._batchers: dict[tuple[str, bool], MicroBatcher[_PlanRound, list[Reply] | BaseException]] = {}

    async def _execute_step(
        self,
        step: object,
        already_applied: bool,
        timeout_s: float | None = None,
        is_stopped: Callable[[], bool] | None = None,
    ) -> Any:
        turn = TURN.get()
        if turn is None:
            return await super()._execute_step(step, already_applied, timeout_s, is_stopped)
        if isinstance(step, ContinueWalk):
            return await turn.continue_walk(step)
        turn.begin_step()
        # Calls that wait for messages, for subscriptions or for searches must not delay those that read messages.
        match step:
            case Round():
                await turn.begin_before_read()
            case BeginSearch(search):
                assert self.wakeups is not None
                return await self.wakeups.begin_search(search, turn.pause)
            case Subscribe() | SubscribeJointly() | SubscribeToEnd():
                turn.pause()
        if not isinstance(step, AwaitWakeup):
            return await super()._execute_step(step, already_applied, timeout_s, is_stopped)
        turn.end()
        await super()._execute_step(step, already_applied, timeout_s)
        try:
            await turn.begin_after_wait()
        except BaseException:
            step.waiter.restore()
            raise
        return None

    async def round(
        self,
        requests: list[Request],
        already_applied: bool = False,
        allow_partial: bool = False,
        *,
        resent: bool = False,
        timeout_s: float | None = None,
        is_stopped: Callable[[], bool] | None = None,
    ) -> list[Reply]:
        turn = TURN.get()
        # A call of a walk is long, so it would delay the rounds of other plans.
        is_walking = turn is not None and turn.walk is not None
        has_limit = timeout_s is not None or is_stopped is not None
        server = None if allow_partial or resent or is_walking or has_limit else self._server(requests)
        if server is None:
            async with self._turn(requests):
                return await self.uncoalesced.round(
                    *(requests, already_applied, allow_partial),
                    resent=resent,
                    timeout_s=timeout_s,
                    is_stopped=is_stopped,
                )
        long_calls = sum(map(_is_long, requests))
        key = server, long_calls > 0
        batcher = self._batchers.get(key)
        if batcher is None:
            batcher = self._batchers[key] = self._make_batcher(server, is_long=long_calls > 0)
        replies = await batcher.submit(_PlanRound(requests, already_applied, long_calls), PLACE.get()[0])
        if isinstance(replies, BaseException):
            raise replies
        return replies

    def _turn(self, requests: list[Request]) -> AbstractAsyncContextManager[None]:
        """Return the turn of a round that is sent separately. A round with few requests needs none."""
        if len(requests) <= _MAX_REQUESTS:
            return _NO_WAIT
        keys = sum(len(request.command) for request in requests if request.command is not None)
        # A round of several calls belongs to the first one, which may have ended. So its context must not be used.
        return self._turns.turn(PLACE.get()[0], max(len(requests), keys // _KEYS_OF_A_REQUEST))

    def _server(self, requests: list[Request]) -> str | None:
        """Return the server of a small round, or None for a round that is sent separately."""
        large = len(requests) > _MAX_REQUESTS or any(map(_is_large, requests))
        # A round that waits for replicas would delay all rounds behind it.
        if large or self._replicas:
            return None
        servers = {self._servers.topology.server(request.shard) for request in requests}
        return servers.pop() if len(servers) == 1 else None

    def _make_batcher(self, server: str, *, is_long: bool) -> MicroBatcher[_PlanRound, list[Reply] | BaseException]:
        sizes = self._group_sizes.setdefault(server, _GroupSizes())
        send = partial(self._send_timed_group, sizes)
        if is_long:
            return MicroBatcher(send, sizes.count, group_max=_LONG_CALLS_MAX)
        return MicroBatcher(send, len, group_max=_MAX_ROUNDS)

    async def _send_timed_group(
        self, sizes: _GroupSizes, group: list[_PlanRound]
    ) -> Sequence[list[Reply] | BaseException]:
        began = time.monotonic()
        try:
            return await self._send_group(group)
        finally:
            seconds, calls = time.monotonic() - began, sum(item.long_calls for item in group)
            if calls:
                sizes.on_long_group(calls, seconds)
            else:
                sizes.on_short_group(seconds)

    async def _send_group(self, group: list[_PlanRound]) -> Sequence[list[Reply] | BaseException]:
        sent: list[Request] = []
        reads: dict[tuple[int, Command], int] = {}
        indexes = [[_assign_index(request, sent, reads) for request in item.requests] for item in group]
        try:
            replies = await self.uncoalesced.round(sent, any(item.already_applied for item in group))
        except Unavailable:
            raise
        except TickwheelError:
            # The error belongs to one of the rounds. Each round is sent again separately, so that only the plan of the
            # failed round gets the error. The other calls may have been executed, so they are sent as retries, and get
            # their first answers.
            retries = [self.uncoalesced.round(item.requests, item.already_applied, resent=True) for item in group]
            return await asyncio.gather(*retries, return_exceptions=True)
        return [[replies[index] for index in row] for row in indexes]


def _is_large(request: Request) -> bool:
    """Return whether a request is sent separately, because of its size or of the possible size of its reply."""
    if request.call is not None:
        return len(request.call.args) > _MAX_ARGUMENTS
    return request.command is not None and request.command[0] in _LARGE_READS


def _is_long(request: Request) -> bool:
    """Return whether a script call may read thousands of index entries."""
    if request.call is None:
        return False
    name, args = request.call.script.name, request.call.args
    if name in {"dequeue", "peek_orders"} and len(args) > 3:
        # The first argument is the context of the queue, and the fourth one is the filter. In an exclusive queue, each
        # entry of a filter's index costs further reads.
        context, filters = args[0], args[3]
        assert isinstance(context, bytes)
        assert isinstance(filters, bytes)
        return bool(filters) and (has_several_pairs(filters) or QueueConfig.is_exclusive_context(context))
    return name in _LONG_SCRIPTS


def _assign_index(request: Request, sent: list[Request], reads: dict[tuple[int, Command], int]) -> int:
    """Append the request to ``sent``, and return the index of its reply. A read already in ``sent`` is shared."""
    index = len(sent)
    if request.command is not None and request.command[0] in _READS:
        index = reads.setdefault((request.shard, request.command), index)
    if index == len(sent):
        sent.append(request)
    return index
