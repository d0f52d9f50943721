"""The waiters of one queue, in the order in which they are woken. Not thread-safe, and no I/O."""

from collections import OrderedDict
from collections.abc import Callable, Iterator


class Waiter:
    """One sleeping dequeue. ``notify`` wakes the dequeue, and may be called from any thread."""

    __slots__ = ("covers", "held_since", "holds_wakeup", "notify", "queue", "where", "woken")

    def __init__(self, queue: str, notify: Callable[[], None], where: bytes) -> None:
        self.queue = queue
        self.notify = notify
        self.where = where
        self.woken = False
        # Whether the waiter was woken for a message, and has neither passed the wake-up on nor left.
        self.holds_wakeup = False
        # The number of the last sweep before the waiter was woken.
        self.held_since = 0
        # The number of the latest announcement that the waiter's search takes into account.
        self.covers = 0


class Group:
    """The waiters of a queue that have the same filter, or no filter."""

    __slots__ = ("has_filter", "searched", "searches", "waiters", "width")

    def __init__(self, where: bytes) -> None:
        self.has_filter = bool(where)
        # In round-robin order.
        self.waiters: OrderedDict[Waiter, None] = OrderedDict()
        # A search that began after this announcement found nothing.
        self.searched = -1
        # The number of waiters that hold a wake-up, and its maximum.
        self.searches, self.width = 0, 1


class Line:
    """The waiters of one queue."""

    __slots__ = ("announcements", "groups", "searches", "unassigned")

    def __init__(self) -> None:
        # In round-robin order.
        self.groups: OrderedDict[bytes, Group] = OrderedDict()
        self.announcements = 0
        # Wake-ups that no waiter holds, and the number of waiters with a filter that hold one.
        self.unassigned = self.searches = 0

    def waiters(self) -> Iterator[Waiter]:
        for group in self.groups.values():
            yield from group.waiters

    def next_waiter(self, *, for_message: bool) -> Waiter | None:
        """Return the next waiter that is not woken or searching, and move it to the end of the round robin.

        ``for_message``: only a waiter whose search may find a message that was announced.
        """
        for where, group in self.groups.items():
            is_useful = group.searched < self.announcements and group.searches < group.width
            if for_message and group.has_filter and not is_useful:
                continue
            for waiter in group.waiters:
                if not waiter.woken and not waiter.holds_wakeup:
                    group.waiters.move_to_end(waiter)
                    self.groups.move_to_end(where)
                    return waiter
        return None

    def hold_wakeup(self, waiter: Waiter) -> None:
        """Give an unassigned wake-up to a waiter."""
        self.unassigned -= 1
        waiter.holds_wakeup = True
        if waiter.where:
            self.searches += 1
            self.groups[waiter.where].searches += 1

    def drop_wakeup(self, waiter: Waiter, *, unused: bool) -> None:
        """Take the wake-up from a waiter that holds one. ``unused``: it goes to another waiter."""
        if not waiter.holds_wakeup:
            return
        waiter.holds_wakeup = False
        self.unassigned += unused
        if waiter.where:
            self.searches -= 1
            self.groups[waiter.where].searches -= 1
