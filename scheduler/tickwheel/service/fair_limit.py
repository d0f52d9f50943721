"""Limits that callers share, so that no caller can take the places of others."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from weakref import WeakValueDictionary

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
