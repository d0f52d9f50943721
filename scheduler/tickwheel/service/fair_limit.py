"""Limits that callers share, so that no caller can take the places of others."""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final
from weakref import WeakValueDictionary

from tickwheel import limits
from tickwheel.errors import LimitExceeded
from tickwheel.runtime.backoff import exponential
from tickwheel.service.token_quota import RETRY_AFTER_MS

# First and longest pause between two attempts of a caller that waits until it may hold more.
_PAUSE_S: Final = 0.05
_PAUSE_MAX_S: Final = 1.0


class FairLimit:
    """Limits what all callers hold in total. A caller may hold at most as much as it leaves free for others.

    The limit holds when a caller takes something. So one caller holds at most half. If n callers take all that they may
    one after the other, a part of 1/2^n stays free. While they put back and take, the free part grows towards
    1/(n+1). So several callers can leave nothing free. Each other caller may then still hold its minimal share. By
    this, the total exceeds the limit by at most one minimal share for each caller, and by what callers `lend`.
    """

    def __init__(self, limit: int, noun: str, *, min_share: int = 0, ignores_excess: bool = False) -> None:
        """``noun`` names what the callers hold, in error texts. A caller may hold ``min_share`` in any case.

        With `count`, a caller can hold more than its share. If ``ignores_excess``, this takes nothing from other
        callers: what it holds above the share is then not subtracted from what is free for others.
        """
        self.limit = limit
        self.total = 0
        self._noun = noun
        self._min_share = min_share
        self._ignores_excess = ignores_excess
        self._held: dict[str, int] = {}

    @contextmanager
    def lend(self, caller: str, amount: int = 1) -> Iterator[None]:
        """Do not count ``amount`` of what the caller holds as the caller's in the ``with`` block, because another limit
        counts it. The total still includes it.
        """
        self._add(caller, -amount)
        try:
            yield
        finally:
            self._add(caller, amount)

    def take(self, caller: str, amount: int = 1) -> None:
        """Hold ``amount`` until `put_back`. Raises LimitExceeded if this is more than the caller leaves free."""
        self.check(caller, amount)
        self.count(caller, amount)

    def check(self, caller: str, amount: int = 1) -> None:
        """Raise LimitExceeded if the caller may not hold ``amount`` more."""
        if not self._allows(caller, amount):
            in_any_case = f", and {self._min_share:,} in any case" if self._min_share else ""
            raise LimitExceeded(
                f"{caller} has {self._held.get(caller, 0):,} {self._noun}, and a caller may have at most as many as it"
                f" leaves free for others, of {self.limit:,} in total{in_any_case}: retry later, or use another process"
                " of the service",
                RETRY_AFTER_MS,
            )

    async def wait(self, caller: str, amount: int = 1) -> None:
        """Wait until the caller may hold ``amount`` more."""
        attempts = 0
        while not self._allows(caller, amount):
            attempts += 1
            await asyncio.sleep(exponential(_PAUSE_S, _PAUSE_MAX_S, attempts))

    def count(self, caller: str, amount: int) -> None:
        """Hold ``amount`` until `put_back`, even if this is more than the caller leaves free."""
        self._add(caller, amount)
        self.total += amount

    def put_back(self, caller: str, amount: int = 1) -> None:
        """End the hold of ``amount``."""
        self._add(caller, -amount)
        self.total -= amount

    def _allows(self, caller: str, amount: int) -> bool:
        wanted = self._held.get(caller, 0) + amount
        if wanted <= max(self._min_share, self.limit - self.total - amount):
            return True
        return self._ignores_excess and wanted <= self._free_without_excess() - amount

    def _free_without_excess(self) -> float:
        """Return how much would be free if no caller held more than its share.

        The share of a caller is half of what the callers with more leave free. A caller can only hold more than this
        because of `count`.
        """
        free: float = self.limit
        for held in sorted(self._held.values(), reverse=True):
            free -= min(held, free / 2)
        return free

    def _add(self, caller: str, amount: int) -> None:
        held = self._held.get(caller, 0) + amount
        if held:
            self._held[caller] = held
        else:
            # Callers come and go, so nothing may remain of them.
            self._held.pop(caller, None)


class CallerTurns:
    """Limits what each caller does at a time."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # An entry disappears when no call of the caller uses it.
        self._semaphores: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def of(self, caller: str) -> asyncio.Semaphore:
        """Return the semaphore of the caller."""
        semaphore = self._semaphores.get(caller)
        if semaphore is None:
            semaphore = self._semaphores[caller] = asyncio.Semaphore(self._limit)
        return semaphore


class ReadTurns:
    """Limits the size of what each caller reads at a time. The reads of a caller begin in the order of their calls.

    The event loop builds a large read and processes its replies without a pause. So if many calls of a caller read at
    the same time, the calls of others wait for all of them.
    """

    def __init__(self, limit: int) -> None:
        """``limit`` is the total size of what a caller reads at a time. A larger read begins if the caller has none."""
        self._limit = limit
        # An entry disappears when no call of the caller uses it.
        self._lines: WeakValueDictionary[str, _Line] = WeakValueDictionary()

    def turn(self, caller: str, size: int = 1) -> "ReadTurn":
        """Return the turn of a read: use it in an ``async with`` statement."""
        line = self._lines.get(caller)
        if line is None:
            line = self._lines[caller] = _Line(self._limit)
        return ReadTurn(line, size)


class ReadTurn:
    """The right to read. The turn ends with its ``async with`` block, or after a time, because a read can last as long
    as a shard does not answer. The next reads of the caller then need not wait for this shard.
    """

    __slots__ = ("_has_ended", "_line", "_size", "_timer")

    def __init__(self, line: "_Line", size: int) -> None:
        self._line = line
        self._size = size
        self._has_ended = False

    async def __aenter__(self) -> None:
        if not self._line.take(self._size):
            await self._line.wait(self._size)
        self._timer = asyncio.get_running_loop().call_later(limits.READ_TURN_S, self._end)

    async def __aexit__(self, *_: object) -> None:
        self._timer.cancel()
        self._end()

    def _end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._line.put_back(self._size)


class _Line:
    """The reads of one caller: the size of those that go on, and those that wait, in their order."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def take(self, size: int) -> bool:
        """Begin a read, and return True; or return False if the read must wait."""
        if self._waiting or not self._has_room(size):
            return False
        self._taken += size
        return True

    async def wait(self, size: int) -> None:
        """Wait in the line, and then begin a read."""
        begun = asyncio.get_running_loop().create_future()
        place = size, begun
        self._waiting.append(place)
        try:
            await begun
        except asyncio.CancelledError:
            if begun.done() and not begun.cancelled():
                # The read has begun, but its call has been cancelled before it continued.
                self.put_back(size)
            else:
                with suppress(ValueError):
                    self._waiting.remove(place)
                self._begin_next()
            raise

    def put_back(self, size: int) -> None:
        """End a read."""
        self._taken -= size
        self._begin_next()

    def _begin_next(self) -> None:
        while self._waiting and self._has_room(self._waiting[0][0]):
            size, begun = self._waiting.popleft()
            if not begun.cancelled():
                self._taken += size
                begun.set_result(None)

    def _has_room(self, size: int) -> bool:
        return not self._taken or self._taken + size <= self._limit
