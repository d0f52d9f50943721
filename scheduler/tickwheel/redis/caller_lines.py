"""Items of the callers of a service, who take turns. No I/O.

For example, one call can wait for thousands of wake channels, and a part of them is subscribed to at a time. Without
turns, a call that waits for one queue would be subscribed after all channels of the callers before it.
"""

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")


class CallerLines(Generic[T]):
    """The items of each caller, in the order in which they were added. An item is in the line of a caller once."""

    def __init__(self) -> None:
        # The next caller comes first. An ordered dictionary finds its first key at once, however many were removed.
        self._by_caller: OrderedDict[str, OrderedDict[T, None]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._by_caller)

    def add(self, item: T, caller: str) -> None:
        """Add an item. Does nothing if it is there."""
        self._by_caller.setdefault(caller, OrderedDict())[item] = None

    def discard(self, item: T, caller: str) -> None:
        """Remove an item if it is there."""
        items = self._by_caller.get(caller)
        if items is not None:
            items.pop(item, None)
            if not items:
                del self._by_caller[caller]

    def move(self, item: T, caller: str, to: str) -> bool:
        """Move an item to the line of another caller if that line is shorter. Return whether it moved."""
        items = self._by_caller.get(caller)
        if items is None or item not in items or len(self._by_caller.get(to, ())) >= len(items):
            return False
        self.discard(item, caller)
        self.add(item, to)
        return True

    def take(self, count: int) -> list[T]:
        """Remove and return up to ``count`` items, as many of each caller as possible."""
        taken: list[T] = []
        share = max(count // max(len(self._by_caller), 1), 1)
        while self._by_caller and len(taken) < count:
            caller, items = self._by_caller.popitem(last=False)
            size = min(share, len(items), count - len(taken))
            taken += [items.popitem(last=False)[0] for _ in range(size)]
            if items:
                self._by_caller[caller] = items
        return taken
