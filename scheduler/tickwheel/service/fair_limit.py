"""A limit that callers share, so that no caller can take the places of others."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary

from tickwheel.errors import LimitExceeded
from tickwheel.service.token_quota import RETRY_AFTER_MS


class FairLimit:
    """Limits what all callers hold in total. A caller may hold at most as much as it leaves free for others.

    The limit holds when a caller takes something. So one caller holds at most half. If n callers take all that they may
    one after the other, a part of 1/2^n stays free. While they put back and take, the free part grows towards
    1/(n+1).
    """

    def __init__(self, limit: int, noun: str) -> None:
        """``noun`` names what the callers hold, in error texts."""
        self.limit = limit
        self.total = 0
        self._noun = noun
        self._held: dict[str, int] = {}

    @contextmanager
    def hold(self, caller: str, amount: int = 1) -> Iterator[None]:
        """Hold ``amount`` in the ``with`` block. Raises LimitExceeded if this is more than the caller leaves free."""
        self.take(caller, amount)
        try:
            yield
        finally:
            self.put_back(caller, amount)

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

    def held(self, caller: str) -> int:
        """Return how much the caller holds."""
        return self._held.get(caller, 0)

    def check(self, caller: str, amount: int = 1) -> None:
        """Raise LimitExceeded if the caller may not hold ``amount`` more."""
        held = self._held.get(caller, 0)
        if held + amount > self.limit - self.total - amount:
            raise LimitExceeded(
                f"{caller} has {held:,} {self._noun}, and a caller may have at most as many as it leaves free for"
                f" others, of {self.limit:,} in total: retry later, or use another process of the service",
                RETRY_AFTER_MS,
            )

    def count(self, caller: str, amount: int) -> None:
        """Hold ``amount`` until `put_back`, even if this is more than the caller leaves free."""
        self._add(caller, amount)
        self.total += amount

    def put_back(self, caller: str, amount: int = 1) -> None:
        """End the hold of ``amount``."""
        self._add(caller, -amount)
        self.total -= amount

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
