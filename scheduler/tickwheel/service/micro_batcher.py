"""Groups what concurrent calls want of one shard: while one group is under way, those that come wait for the next one.

A call that is alone is sent at once. After a group, the next one waits until it is as large, but only as long as each
millisecond brings more, and three of them, where nothing else is said: so one call of a script, and one system call to
each client, do for many.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_LINGER_S: Final = 0.003
_QUIET_S: Final = 0.001


class MicroBatcher(Generic[T, R]):
    """One line of those who wait."""

    def __init__(
        self,
        send: Callable[[list[T]], Awaitable[Sequence[R]]],
        max_batch: Callable[[Sequence[T]], int],
        linger_s: float = _LINGER_S,
    ) -> None:
        """``send`` does a group and answers each of it, in order; ``fitting`` says how many from the front make one."""
        self._linger_s = linger_s
        self._send = send
        self._max_batch = max_batch
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._sending: asyncio.Task[None] | None = None
        self.is_busy = False
        """Whether a group is under way or waits to be sent."""
        # So many are likely to come together: as many as did the last time.
        self._expected = 1

    async def submit(self, item: T) -> R:
        """What became of it. A caller that is cancelled takes nobody's answer away."""
        if not self.is_busy and self._expected == 1:
            return await self._send_single(item)
        done: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, done))
        if not self.is_busy:
            self._start()
        return await done

    async def _send_single(self, item: T) -> R:
        """In the caller's own task, so that it costs nothing to be grouped."""
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
                # Who has given up by now asks for nothing.
                waiting = [(item, done) for item, done in self._waiting if not done.done()]
                count = self._max_batch([item for item, _ in waiting])
                group, self._waiting = waiting[:count], waiting[count:]
                if group:
                    await self._send_group(group)
                self._expected = max(len(group), 1 + bool(self._waiting))
        finally:
            self.is_busy = False

    async def _linger(self) -> None:
        """Wait for as many as are expected, as long as more comes."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._linger_s
        size = 0
        while size < len(self._waiting) < self._expected and loop.time() < until:
            size = len(self._waiting)
            await asyncio.sleep(_QUIET_S)

    async def _send_group(self, group: list[tuple[T, asyncio.Future[R]]]) -> None:
        try:
            results = await self._send([item for item, _ in group])
        except (Exception, asyncio.CancelledError) as error:
            for _, done in group:
                if not done.done():
                    done.set_exception(error)
            return
        for (_, done), result in zip(group, results, strict=True):
            if not done.done():
                done.set_result(result)
