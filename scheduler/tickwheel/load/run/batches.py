"""What is planned close together goes into one call, as producers who batch do: up to a size, or a linger of time."""

import math
from collections.abc import Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
T = TypeVar("T")


class Batches(Generic[K, T]):
    """Items by key, each with the time that it was planned for."""

    def __init__(self, size: int, linger_s: float) -> None:
        self._size = size
        self._linger_s = linger_s
        self._waiting: dict[K, list[tuple[float, T]]] = {}

    def add(self, key: K, planned_s: float, item: T) -> None:
        self._waiting.setdefault(key, []).append((planned_s, item))

    def ready(self, moment: float) -> Iterator[tuple[K, list[tuple[float, T]]]]:
        """What goes out now: whole batches, and the rest where it has waited for others as long as it may."""
        for key in list(self._waiting):
            items = self._waiting.pop(key)
            while len(items) >= self._size or (items and moment >= items[0][0] + self._linger_s):
                yield key, items[: self._size]
                items = items[self._size :]
            if items:
                self._waiting[key] = items

    @property
    def next_s(self) -> float:
        """When something is to go out at the latest; infinite where nothing waits."""
        return min((items[0][0] + self._linger_s for items in self._waiting.values()), default=math.inf)

    def __bool__(self) -> bool:
        return bool(self._waiting)
