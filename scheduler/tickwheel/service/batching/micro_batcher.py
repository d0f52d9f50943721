"""Micro-batching: groups the items of concurrent calls. While a group is in flight, new items wait for the next group.

If items of several callers wait, the callers take turns.

A lone item is sent immediately. After a group of several items, the batcher waits before it sends the next group. The
wait ends when the next group is as large as the last one, when a millisecond passes without a new item, or after
``linger_s`` (3 ms by default). So one script call serves many gRPC calls, and gRPC sends several answers at the same
time (docs/decisions/0017).
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, cast

T = TypeVar("T")
R = TypeVar("R")

# The items of a group, at most, if a batcher has no lower limit.
_GROUP_MAX: Final = 1_000
_LINGER_S: Final = 0.003
_QUIET_S: Final = 0.001


@dataclass(slots=True)
class _Entry(Generic[T, R]):
    """An item that waits to be sent, and its result. The item of a cancelled call is None."""

    item: T | None
    done: asyncio.Future[R]


class MicroBatcher(Generic[T, R]):
    """A queue of items that wait to be sent, and the task that sends them in groups."""

    def __init__(
        self,
        send: Callable[[list[T]], Awaitable[Sequence[R]]],
        max_batch: Callable[[Sequence[T]], int],
        linger_s: float = _LINGER_S,
        group_max: int = _GROUP_MAX,
    ) -> None:
        """``send`` executes a group and returns one result for each item, in order. ``max_batch`` returns how many of
        the next ``group_max`` waiting items, from the front, the next group takes. ``linger_s`` limits the wait for
        more items.
        """
        self._group_max = group_max
        self._linger_s = linger_s
        self._send = send
        self._max_batch = max_batch
        # The items of each caller. The next caller comes first.
        self._lines: OrderedDict[str, deque[_Entry[T, R]]] = OrderedDict()
        self._waiting_count = 0
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
        entry = _Entry(item, done)
        self._lines.setdefault(caller, deque()).append(entry)
        self._waiting_count += 1
        if not self.is_busy:
            self._start()
        try:
            return await done
        except asyncio.CancelledError:
            # The entry may stay until a group that hangs has ended. The item can have 64 KiB.
            entry.item = None
            raise

    async def _send_single(self, item: T) -> R:
        """Send a lone item in the caller's own task: a batcher that is not busy costs no extra task."""
        self.is_busy = True
        try:
            [result] = await self._send([item])
            return result
        finally:
            self.is_busy = False
            if self._lines:
                self._expected = 2
                self._start()

    def _start(self) -> None:
        self.is_busy = True
        self._sending = asyncio.create_task(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._lines:
                await self._linger()
                group = self._take_group()
                if group:
                    await self._send_group(group)
                self._expected = max(len(group), 1 + bool(self._lines))
        finally:
            self.is_busy = False

    async def _linger(self) -> None:
        """Wait for the expected number of items. Stop at the time limit, or after a pause without a new item."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._linger_s
        size = 0
        while size < self._waiting_count < self._expected and loop.time() < until:
            size = self._waiting_count
            await asyncio.sleep(_QUIET_S)

    def _take_group(self) -> list[_Entry[T, R]]:
        """Remove and return the items of the next group. The callers take turns."""
        taken: list[tuple[str, _Entry[T, R]]] = []
        lines = deque(self._lines.items())
        while lines and len(taken) < self._group_max:
            caller, line = lines.popleft()
            entry = line.popleft()
            self._waiting_count -= 1
            # Items of cancelled callers are dropped.
            if not entry.done.done():
                taken.append((caller, entry))
            if line:
                lines.append((caller, line))
            else:
                del self._lines[caller]
        count = self._max_batch([cast(T, entry.item) for _, entry in taken])
        for caller, _ in taken[:count]:
            if caller in self._lines:
                self._lines.move_to_end(caller)
        for caller, entry in reversed(taken[count:]):
            self._lines.setdefault(caller, deque()).appendleft(entry)
            self._waiting_count += 1
        return [entry for _, entry in taken[:count]]

    async def _send_group(self, group: list[_Entry[T, R]]) -> None:
        try:
            results = await self._send([cast(T, entry.item) for entry in group])
        except (Exception, asyncio.CancelledError) as error:
            for entry in group:
                if not entry.done.done():
                    entry.done.set_exception(error)
            return
        for entry, result in zip(group, results, strict=True):
            if not entry.done.done():
                entry.done.set_result(result)


def drop_idle(batchers: dict[Any, Any], max_batchers: int) -> None:
    """Drop the batchers that are not busy (`is_busy`) if there is no room for another one."""
    if len(batchers) >= max_batchers:
        for key in [key for key, batcher in batchers.items() if not batcher.is_busy]:
            del batchers[key]
