"""Groups planned items into batches. A batch is sent when it is full, or after its linger time."""

import math
from collections.abc import Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
T = TypeVar("T")


class Batches(Generic[K, T]):
    """Collects items by key, each with its planned time. A batch has at most ``size`` items of one key."""

    def __init__(self, size: int, linger_s: float) -> None:
        self._size = size
        self._linger_s = linger_s
        self._waiting: dict[K, list[tuple[float, T]]] = {}

    def add(self, key: K, planned_s: float, item: T) -> None:
        self._waiting.setdefault(key, []).append((planned_s, item))

    def ready(self, moment: float) -> Iterator[tuple[K, list[tuple[float, T]]]]:
        """Yield the batches to send now: full ones, and those whose oldest item has waited for the linger time."""
        for key in list(self._waiting):
            items = self._waiting.pop(key)
            while len(items) >= self._size or (items and moment >= items[0][0] + self._linger_s):
                yield key, items[: self._size]
                items = items[self._size :]
            if items:
                self._waiting[key] = items

    @property
    def next_s(self) -> float:
        """Return the time at which the next batch must be sent; infinite if no item waits."""
        return min((items[0][0] + self._linger_s for items in self._waiting.values()), default=math.inf)

    def __bool__(self) -> bool:
        return bool(self._waiting)
