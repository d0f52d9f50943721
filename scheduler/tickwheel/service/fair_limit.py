"""Limits that callers share, so that no caller can take the places of others."""

import asyncio
import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
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
# A turn lasts at most this number of ticks. A tick does not count if the event loop is late by more than `_ON_TIME_S`.
_TICKS: Final = 4
_ON_TIME_S: Final = 0.01


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
        if not self.allows(caller, amount):
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
        while not self.allows(caller, amount):
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

    def allows(self, caller: str, amount: int) -> bool:
        """Return whether the caller may hold ``amount`` more."""
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


class SizedTurns:
    """Limits the size of what each caller does at a time: of what it reads, or of its requests that are processed. The
    turns of a caller begin in the order of their calls, in each line (see ``weights``).

    The event loop processes a large request, builds a large read and processes its replies without a pause. So if many
    calls of a caller did this at the same time, the calls of others would wait for all of them.
    """

    def __init__(self, limit: int, hanging_max: float = math.inf, weights: Sequence[int] = ()) -> None:
        """``limit`` is the total size of the turns of a caller. A larger turn begins if the caller has none.

        ``hanging_max``: a turn ends early only if the calls of the caller that go on after their turns have at most
        this weight.

        ``weights``: turns of at most the first of these weights have a line of their own, those of at most the next one
        another line, and so on. Each line has these limits. So light turns do not wait for heavy ones that may not end.
        """
        self._limit = limit
        self._hanging_max = hanging_max
        self._weights = weights
        # An entry disappears when no call of the caller uses it.
        self._lines: WeakValueDictionary[tuple[str, int], _Line] = WeakValueDictionary()

    def turn(self, caller: str, size: int = 1, weight: int = 1) -> "SizedTurn":
        """Return a turn, which has not begun. ``weight``: see ``hanging_max``."""
        key = caller, bisect_left(self._weights, weight)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(self._limit, self._hanging_max)
        return SizedTurn(line, size, weight)


class SizedTurn:
    """The right to read, or to process a request: use it in an ``async with`` statement, or call `begin` and `end`.

    The turn ends early after `limits.TURN_S`, because a read can last as long as a shard does not answer. The next
    calls of the caller then need not wait for this shard. Time in which the event loop is late does not count: then
    the process is busy, and more turns would make it slower.
    """

    __slots__ = ("_due", "_line", "_size", "_ticks", "_timer", "_weight")

    def __init__(self, line: "_Line", size: int, weight: int) -> None:
        self._line = line
        self._size = size
        self._weight = weight
        # After the last tick, the turn has ended early.
        self._ticks = 0

    async def __aenter__(self) -> None:
        await self.begin()

    async def __aexit__(self, *_: object) -> None:
        self.end()

    async def begin(self) -> None:
        """Wait in the line of the caller, and begin the turn."""
        if not self.begin_now():
            await self._line.wait(self._size)
            self._start_timer()

    def begin_now(self) -> bool:
        """Begin the turn, and return True; or return False if the turn must wait."""
        if can_begin := self._line.take(self._size):
            self._start_timer()
        return can_begin

    def end(self) -> None:
        """End the turn, which has begun, unless it has ended early."""
        self._timer.cancel()
        if self._ticks < _TICKS:
            self._line.put_back(self._size)
        else:
            self._line.hanging -= self._weight

    def _start_timer(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = loop.time() + limits.TURN_S / _TICKS
        self._timer = loop.call_at(self._due, self._tick)

    def _tick(self) -> None:
        may_end = self._ticks < _TICKS - 1 or self._line.may_hang(self._weight)
        if may_end and asyncio.get_running_loop().time() - self._due < _ON_TIME_S:
            self._ticks += 1
        if self._ticks < _TICKS:
            self._start_timer()
        else:
            self._line.hanging += self._weight
            self._line.put_back(self._size)


class _Line:
    """A line of turns of one caller: the size of those that go on, and those that wait, in their order."""

    def __init__(self, limit: int, hanging_max: float) -> None:
        self._limit = limit
        self._hanging_max = hanging_max
        # The weight of the calls that went on after their turns ended early.
        self.hanging = 0
        self._taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def may_hang(self, weight: int) -> bool:
        """Return whether a turn of this weight may end early."""
        return self.hanging + weight <= self._hanging_max

    def take(self, size: int) -> bool:
        """Begin a turn, and return True; or return False if the turn must wait."""
        if self._waiting or not self._has_room(size):
            return False
        self._taken += size
        return True

    async def wait(self, size: int) -> None:
        """Wait in the line, and then begin a turn."""
        begun = asyncio.get_running_loop().create_future()
        place = size, begun
        self._waiting.append(place)
        try:
            await begun
        except asyncio.CancelledError:
            if begun.done() and not begun.cancelled():
                # The turn has begun, but its call has been cancelled before it continued.
                self.put_back(size)
            else:
                with suppress(ValueError):
                    self._waiting.remove(place)
                self._begin_next()
            raise

    def put_back(self, size: int) -> None:
        """End a turn."""
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
