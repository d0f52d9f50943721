"""The waiting dequeues of this process, by queue. n messages that become ready wake n waiters, without polling.

If a dequeue with a filter finds no matching message, its waiter forwards the wake-up to the next waiter of the queue.
A wake-up is forwarded at most until each waiter has been tried once. A sweep wakes one waiter of each queue about once
a second, in case a wake-up was lost.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

SWEEP_S = 1.0


class Waiter:
    """One sleeping dequeue. ``notify`` wakes the dequeue, and may be called from any thread."""

    __slots__ = ("_hops", "_list", "_woken", "notify", "queue")

    def __init__(self, waiters: "WaitList", queue: str, notify: Callable[[], None]) -> None:
        self._list = waiters
        self.queue = queue
        self.notify = notify
        self._woken = False
        self._hops = 0


class WaiterHandle:
    """With a handle, a thread or a task becomes a `Waiter` of a `WaitList`, and leaves the list at the end."""

    def __init__(self, waiters: "WaitList", queue: str, notify: Callable[[], None], check: Callable[[], None]) -> None:
        """``check`` raises the error with which the server refused the subscription, if it did."""
        self._waiters = waiters
        self._check = check
        self._waiter = waiters.add(queue, notify)

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


class WaitList:
    """The waiters of a process. Thread-safe. Does not hold its lock while it notifies waiters."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[str, OrderedDict[Waiter, None]] = {}
        self._last_sweep = 0.0
        # The number of wake-ups of waiters so far.
        self.wakeup_count = 0

    def add(self, queue: str, notify: Callable[[], None]) -> Waiter:
        """Add a waiter for the queue and return it. The waiter is the last one in the queue's round robin."""
        waiter = Waiter(self, queue, notify)
        with self._lock:
            self._queues.setdefault(queue, OrderedDict())[waiter] = None
        return waiter

    def remove(self, waiter: Waiter) -> None:
        """Remove a waiter. A wake-up that the waiter did not use goes to another waiter."""
        with self._lock:
            line = self._queues.get(waiter.queue)
            if line is None or waiter not in line:
                return
            del line[waiter]
            unused = waiter._woken
            chosen = self._choose(waiter.queue, 1, waiter._hops) if unused else []
            if not line:
                self._queues.pop(waiter.queue, None)
        self._notify(chosen)

    def wake(self, queue: str, count: int) -> None:
        """Wake ``count`` waiters, because ``count`` messages became ready."""
        with self._lock:
            line = self._queues.get(queue)
            chosen = self._choose(queue, count, len(line)) if line else []
        self._notify(chosen)

    def wake_all(self) -> None:
        """Wake every waiter once, because wake-ups may have been lost."""
        with self._lock:
            chosen = [w for queue, line in self._queues.items() for w in self._choose(queue, len(line), 0)]
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
            chosen = [waiter for queue in self._queues for waiter in self._choose(queue, 1, 0)]
        self._notify(chosen)

    def forward(self, waiter: Waiter) -> None:
        """Pass a wake-up from a waiter that found no message to the next waiter, unless all waiters have been tried."""
        with self._lock:
            hops, waiter._hops = waiter._hops, 0
            chosen = self._choose(waiter.queue, 1, hops - 1) if hops > 1 else []
        self._notify(chosen)

    def consume(self, waiter: Waiter) -> bool:
        """Return whether the waiter was woken since the last call of this method."""
        with self._lock:
            woken, waiter._woken = waiter._woken, False
            return woken

    def count(self) -> int:
        """Return the number of waiters."""
        with self._lock:
            return sum(map(len, self._queues.values()))

    def has_waiter(self, queue: str) -> bool:
        """Return whether the queue has a waiter."""
        return queue in self._queues

    def queues(self) -> list[str]:
        """Return the queues that have waiters."""
        with self._lock:
            return list(self._queues)

    def _choose(self, queue: str, count: int, hops: int) -> list[Waiter]:
        # Round robin: a chosen waiter moves to the end of the line.
        line = self._queues[queue]
        chosen: list[Waiter] = []
        for waiter in list(line) if count >= len(line) else _select_unwoken(line, count):
            line.move_to_end(waiter)
            waiter._woken = True
            waiter._hops = max(waiter._hops, hops)
            chosen.append(waiter)
        self.wakeup_count += len(chosen)
        return chosen

    @staticmethod
    def _notify(chosen: list[Waiter]) -> None:
        for waiter in chosen:
            waiter.notify()


def _select_unwoken(line: OrderedDict[Waiter, None], count: int) -> list[Waiter]:
    chosen: list[Waiter] = []
    for waiter in line:
        if waiter._woken:
            continue
        chosen.append(waiter)
        if len(chosen) == count:
            break
    return chosen
