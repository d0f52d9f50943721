"""The waiting dequeues of this process, by queue and filter. n messages that become ready wake n waiters.

The waiters of a queue that have the same filter are a *group*. At first, a group has one search at a time, and each
search that finds messages doubles this number. If a search finds nothing, its wake-up goes to another group. The group
itself is not woken again for the messages that were announced before the search began. So a message that no filter
matches costs one search for each filter. A sweep wakes one waiter of each queue about once a second, in case a wake-up
was lost. If no wake-up can have been lost, the earlier search answers the waiter's search (`redis/shared_searches.py`).
If the queue does not exist, there are no wake-ups, and the woken waiter checks whether the queue was created.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator

SWEEP_S = 1.0
# The maximum number of concurrent searches of a group.
MAX_WIDTH = 1_024


class Waiter:
    """One sleeping dequeue. ``notify`` wakes the dequeue, and may be called from any thread."""

    __slots__ = ("_covers", "_held_since", "_holds_wakeup", "_list", "_woken", "notify", "queue", "where")

    def __init__(self, waiters: "WaitList", queue: str, notify: Callable[[], None], where: bytes) -> None:
        self._list = waiters
        self.queue = queue
        self.notify = notify
        self.where = where
        self._woken = False
        # Whether the waiter was woken for a message, and has neither passed the wake-up on nor left.
        self._holds_wakeup = False
        # The number of the last sweep before the waiter was woken.
        self._held_since = 0
        # The number of the latest announcement that the waiter's search takes into account.
        self._covers = 0


class WaiterHandle:
    """With a handle, a thread or a task becomes a `Waiter` of a `WaitList`, and leaves the list at the end."""

    def __init__(
        self,
        waiters: "WaitList",
        queue: str,
        notify: Callable[[], None],
        check: Callable[[], None],
        where: bytes = b"",
    ) -> None:
        """``check`` raises the error with which the server refused the subscription, if it did.

        ``where`` is the packed filter of the dequeue.
        """
        self._waiters = waiters
        self._check = check
        self._waiter = waiters.add(queue, notify, where)

    def wake(self) -> None:
        """End the sleep, even if the queue has no message."""
        self._waiter.notify()

    def forward(self) -> None:
        self._waiters.forward(self._waiter)

    def unsubscribe(self) -> None:
        self._waiters.remove(self._waiter)

    def _consume(self) -> None:
        self._waiters.consume(self._waiter)
        self._check()


class _Group:
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


class _Line:
    """The waiters of one queue."""

    __slots__ = ("announcements", "groups", "searches", "unassigned")

    def __init__(self) -> None:
        # In round-robin order.
        self.groups: OrderedDict[bytes, _Group] = OrderedDict()
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
                if not waiter._woken and not waiter._holds_wakeup:
                    group.waiters.move_to_end(waiter)
                    self.groups.move_to_end(where)
                    return waiter
        return None

    def hold_wakeup(self, waiter: Waiter) -> None:
        """Give an unassigned wake-up to a waiter."""
        self.unassigned -= 1
        waiter._holds_wakeup = True
        if waiter.where:
            self.searches += 1
            self.groups[waiter.where].searches += 1

    def drop_wakeup(self, waiter: Waiter, *, unused: bool) -> None:
        """Take the wake-up from a waiter that holds one. ``unused``: it goes to another waiter."""
        if not waiter._holds_wakeup:
            return
        waiter._holds_wakeup = False
        self.unassigned += unused
        if waiter.where:
            self.searches -= 1
            self.groups[waiter.where].searches -= 1


class WaitList:
    """The waiters of a process. Thread-safe. Does not hold its lock while it notifies waiters."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[str, _Line] = {}
        self._last_sweep = 0.0
        self._sweep_count = 0
        # The number of wake-ups of waiters so far.
        self.wakeup_count = 0

    def add(self, queue: str, notify: Callable[[], None], where: bytes = b"") -> Waiter:
        """Add a waiter for the queue and return it. The waiter is the last one in the round robin of its group.

        ``where`` is the packed filter. The waiter searches the queue once, and calls `forward` if it finds nothing.
        """
        waiter = Waiter(self, queue, notify, where)
        with self._lock:
            line = self._queues.setdefault(queue, _Line())
            group = line.groups.get(where)
            if group is None:
                group = line.groups[where] = _Group(where)
            group.waiters[waiter] = None
            waiter._covers = line.announcements
        return waiter

    def remove(self, waiter: Waiter) -> None:
        """Remove a waiter. A wake-up that the waiter did not use goes to another waiter."""
        with self._lock:
            line = self._queues.get(waiter.queue)
            group = None if line is None else line.groups.get(waiter.where)
            if line is None or group is None or waiter not in group.waiters:
                return
            if waiter._holds_wakeup and not waiter._woken:
                # The search found messages, so there may be more for this group.
                group.width = min(group.width * 2, MAX_WIDTH)
            line.drop_wakeup(waiter, unused=waiter._woken)
            del group.waiters[waiter]
            if not group.waiters:
                del line.groups[waiter.where]
            chosen = self._assign(line)
            if not line.groups:
                self._queues.pop(waiter.queue, None)
        self._notify(chosen)

    def wake(self, queue: str, count: int) -> None:
        """Wake up to ``count`` waiters, because ``count`` messages became ready."""
        with self._lock:
            line = self._queues.get(queue)
            chosen = self._announce(line, count) if line else []
        self._notify(chosen)

    def wake_all(self) -> None:
        """Wake every waiter once, because the waits end."""
        with self._lock:
            chosen = [self._wake(waiter) for line in self._queues.values() for waiter in line.waiters()]
        self._notify(chosen)

    def wake_for_lost(self, queue: str | None = None) -> None:
        """Wake as many waiters as the queue has, or all queues have, because wake-ups may have been lost."""
        with self._lock:
            lines = [line for line in (self._queues.get(queue),) if line] if queue else self._queues.values()
            chosen = [w for line in lines for w in self._announce(line, sum(1 for _ in line.waiters()))]
        self._notify(chosen)

    def seconds_to_sweep(self) -> float:
        return max(self._last_sweep + SWEEP_S - time.monotonic(), 0)

    def sweep_if_due(self) -> None:
        """Wake one waiter of each queue, about once a second."""
        if self.seconds_to_sweep() == 0:
            self.sweep()
            self._last_sweep = time.monotonic()

    def sweep(self) -> None:
        """Wake the next waiter of each queue, in case a wake-up was lost."""
        with self._lock:
            chosen = []
            for line in self._queues.values():
                self._release_slow_searches(line)
                chosen += self._assign(line)
                waiter = line.next_waiter(for_message=False)
                if waiter is not None:
                    chosen.append(self._wake(waiter))
            self._sweep_count += 1
        self._notify(chosen)

    def forward(self, waiter: Waiter) -> None:
        """Pass the wake-up of a waiter whose search found nothing to a group whose search may find the message."""
        with self._lock:
            line = self._queues[waiter.queue]
            group = line.groups[waiter.where]
            group.searched = max(group.searched, waiter._covers)
            if not waiter._woken:
                # Otherwise, the waiter was woken during the search, and will use the wake-up for its next search.
                if waiter._holds_wakeup:
                    group.width = 1
                line.drop_wakeup(waiter, unused=True)
            chosen = self._assign(line)
        self._notify(chosen)

    def consume(self, waiter: Waiter) -> bool:
        """Return whether the waiter was woken since the last call of this method. A search of the waiter begins."""
        with self._lock:
            woken, waiter._woken = waiter._woken, False
            line = self._queues.get(waiter.queue)
            if line is not None:
                waiter._covers = line.announcements
                if not waiter.where:
                    # A waiter without a filter does not pass its wake-up on.
                    line.drop_wakeup(waiter, unused=False)
            return woken

    def count(self) -> int:
        """Return the number of waiters."""
        with self._lock:
            return sum(1 for line in self._queues.values() for _ in line.waiters())

    def has_waiter(self, queue: str) -> bool:
        """Return whether the queue has a waiter."""
        return queue in self._queues

    def has_filters(self) -> bool:
        """Return whether a waiter has a filter."""
        with self._lock:
            return any(group.has_filter for line in self._queues.values() for group in line.groups.values())

    def queues(self) -> list[str]:
        """Return the queues that have waiters."""
        with self._lock:
            return list(self._queues)

    def _announce(self, line: _Line, count: int) -> list[Waiter]:
        line.announcements += 1
        line.unassigned += count
        return self._assign(line)

    def _assign(self, line: _Line) -> list[Waiter]:
        """Give the unassigned wake-ups to waiters. Wake-ups that remain wait for the end of the current searches."""
        chosen: list[Waiter] = []
        while line.unassigned > 0 and (waiter := line.next_waiter(for_message=True)) is not None:
            line.hold_wakeup(waiter)
            waiter._held_since = self._sweep_count
            chosen.append(self._wake(waiter))
        if line.searches == 0:
            line.unassigned = 0
        return chosen

    def _release_slow_searches(self, line: _Line) -> None:
        """Let the other waiters of a group search, too, if a search lasted longer than the time between two sweeps.

        For example, a server does not answer, and messages become ready on other servers.
        """
        for waiter in line.waiters():
            if waiter._holds_wakeup and waiter._held_since < self._sweep_count:
                line.groups[waiter.where].width = MAX_WIDTH
                line.drop_wakeup(waiter, unused=True)

    def _wake(self, waiter: Waiter) -> Waiter:
        waiter._woken = True
        self.wakeup_count += 1
        return waiter

    @staticmethod
    def _notify(chosen: list[Waiter]) -> None:
        for waiter in chosen:
            waiter.notify()
