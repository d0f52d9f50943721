"""Micro-batching: groups the items of concurrent calls. While a group is in flight, new items wait for the next group.

If items of several callers wait, the callers take turns.

A lone item is sent immediately. After a group of several items, the batcher waits before it sends the next group. The
wait ends when the next group is as large as the last one, when a millisecond passes without a new item, or after
``linger_s`` (3 ms by default). So one script call serves many gRPC calls, and gRPC sends several answers at the same
time (docs/decisions/0017).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_LINGER_S: Final = 0.003
_QUIET_S: Final = 0.001


class MicroBatcher(Generic[T, R]):
    """A queue of items that wait to be sent, and the task that sends them in groups."""

    def __init__(
        self,
        send: Callable[[list[T]], Awaitable[Sequence[R]]],
        max_batch: Callable[[Sequence[T]], int],
        linger_s: float = _LINGER_S,
    ) -> None:
        """``send`` executes a group and returns one result for each item, in order. ``max_batch`` returns how many of
        the waiting items, from the front, the next group takes. ``linger_s`` limits the wait for more items.
        """
        self._linger_s = linger_s
        self._send = send
        self._max_batch = max_batch
        # Each item with the name of its caller.
        self._waiting: list[tuple[T, asyncio.Future[R], str]] = []
        self._sending: asyncio.Task[None] | None = None
        self.is_busy = False
        """True while a group is in flight or waits to be sent."""
        # The size that the next group is expected to reach.
        self._expected = 1

    async def submit(self, item: T, caller: str = "") -> R:
        """Send the item in one call with the items of concurrent calls, and return its result. Raises as ``send`` does.

        If the caller is cancelled, the other items of the group still get their results.
        """
        if not self.is_busy and self._expected == 1:
            return await self._send_single(item)
        done: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, done, caller))
        if not self.is_busy:
            self._start()
        return await done

    async def _send_single(self, item: T) -> R:
        """Send a lone item in the caller's own task: a batcher that is not busy costs no extra task."""
        self.is_busy = True
        try:
            [result] = await self._send([item])
            return result
        finally:
            self.is_busy = False
            if self._waiting:
                self._expected = 2
                self._start()

    def _start(self) -> None:
        self.is_busy = True
        self._sending = asyncio.create_task(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                await self._linger()
                # Items of cancelled callers are dropped.
                waiting = _in_turns([entry for entry in self._waiting if not entry[1].done()])
                count = self._max_batch([item for item, _, _ in waiting])
                group, self._waiting = waiting[:count], waiting[count:]
                if group:
                    await self._send_group(group)
                self._expected = max(len(group), 1 + bool(self._waiting))
        finally:
            self.is_busy = False

    async def _linger(self) -> None:
        """Wait for the expected number of items. Stop at the time limit, or after a pause without a new item."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._linger_s
        size = 0
        while size < len(self._waiting) < self._expected and loop.time() < until:
            size = len(self._waiting)
            await asyncio.sleep(_QUIET_S)

    async def _send_group(self, group: list[tuple[T, asyncio.Future[R], str]]) -> None:
        try:
            results = await self._send([item for item, _, _ in group])
        except (Exception, asyncio.CancelledError) as error:
            for _, done, _ in group:
                if not done.done():
                    done.set_exception(error)
            return
        for (_, done, _), result in zip(group, results, strict=True):
            if not done.done():
                done.set_result(result)


def _in_turns(waiting: list[tuple[T, asyncio.Future[R], str]]) -> list[tuple[T, asyncio.Future[R], str]]:
    """Return the items in such an order that the callers take turns. The items of a caller keep their order."""
    by_caller: dict[str, list[tuple[T, asyncio.Future[R], str]]] = {}
    for entry in waiting:
        by_caller.setdefault(entry[2], []).append(entry)
    if len(by_caller) < 2:
        return waiting
    lines = deque(map(deque, by_caller.values()))
    in_turns: list[tuple[T, asyncio.Future[R], str]] = []
    while lines:
        line = lines.popleft()
        in_turns.append(line.popleft())
        if line:
            lines.append(line)
    return in_turns


def drop_idle(batchers: dict[Any, Any], max_batchers: int) -> None:
    """Drop the batchers that are not busy (`is_busy`) if there is no room for another one."""
    if len(batchers) >= max_batchers:
        for key in [key for key, batcher in batchers.items() if not batcher.is_busy]:
            del batchers[key]
