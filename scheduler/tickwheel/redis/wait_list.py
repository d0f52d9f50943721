"""Who waits for which queue, in this process. n messages ready wake n waiters; nobody polls.

A waiter that finds nothing for itself (its filter did not match, another was faster) passes the wake on, to each of the
others at most once. A sweep about once a second, for one waiter of each queue, is the backstop for a lost wake-up.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable

SWEEP_S = 1.0
# For a subscription to stand, and before the next try where it was lost, or refused.
CONFIRM_S, RECONNECT_S, REFUSED_S = 5.0, 0.1, 1.0


class Waiter:
    """One dequeuer that sleeps. ``notify`` makes it wake up, from any thread."""

    __slots__ = ("_hops", "_list", "_woken", "notify", "queue")

    def __init__(self, waiters: "WaitList", queue: str, notify: Callable[[], None]) -> None:
        self._list = waiters
        self.queue = queue
        self.notify = notify
        self._woken = False
        self._hops = 0


class WaiterHandle:
    """The waiter of one call; a thread or a task sleeps until ``notify``."""

    def __init__(self, waiters: "WaitList", queue: str, notify: Callable[[], None], check: Callable[[], None]) -> None:
        """``check`` raises what the server refused the subscription with."""
        self._waiters = waiters
        self._check = check
        self._waiter = waiters.add(queue, notify)

    def wake(self) -> None:
        """End the sleep, whatever the queue has."""
        self._waiter.notify()

    def forward(self) -> None:
        self._waiters.forward(self._waiter)

    def unsubscribe(self) -> None:
        self._waiters.remove(self._waiter)

    def _consume(self) -> None:
        self._waiters.consume(self._waiter)
        self._check()


class WaitList:
    """The waiters of a process. Safe to use from many threads; its lock is never held while anything is sent."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[str, OrderedDict[Waiter, None]] = {}
        # How often a waiter was woken.
        self.wakeup_count = 0

    def add(self, queue: str, notify: Callable[[], None]) -> Waiter:
        """Enter a waiter at the end of its queue's line."""
        waiter = Waiter(self, queue, notify)
        with self._lock:
            self._queues.setdefault(queue, OrderedDict())[waiter] = None
        return waiter

    def remove(self, waiter: Waiter) -> None:
        """Take a waiter out; a wake-up that it did not use goes to another."""
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
        """``count`` messages became ready: wake as many."""
        with self._lock:
            line = self._queues.get(queue)
            chosen = self._choose(queue, count, len(line)) if line else []
        self._notify(chosen)

    def wake_all(self) -> None:
        """Wake-ups may have been lost: let everybody look once."""
        with self._lock:
            chosen = [w for queue, line in self._queues.items() for w in self._choose(queue, len(line), 0)]
        self._notify(chosen)

    def sweep(self) -> None:
        """Let the next waiter of each queue look, in case a wake-up was lost."""
        with self._lock:
            chosen = [waiter for queue in self._queues for waiter in self._choose(queue, 1, 0)]
        self._notify(chosen)

    def forward(self, waiter: Waiter) -> None:
        """The wake-up was not for this waiter: let the next one look, unless all have."""
        with self._lock:
            hops, waiter._hops = waiter._hops, 0
            chosen = self._choose(waiter.queue, 1, hops - 1) if hops > 1 else []
        self._notify(chosen)

    def consume(self, waiter: Waiter) -> bool:
        """Whether the waiter was woken since it last asked."""
        with self._lock:
            woken, waiter._woken = waiter._woken, False
            return woken

    def count(self) -> int:
        """How many wait."""
        with self._lock:
            return sum(map(len, self._queues.values()))

    def has_waiter(self, queue: str) -> bool:
        """Whether anybody waits for the queue."""
        return queue in self._queues

    def queues(self) -> list[str]:
        """The queues that somebody waits for."""
        with self._lock:
            return list(self._queues)

    def _choose(self, queue: str, count: int, hops: int) -> list[Waiter]:
        # Round robin: who was chosen goes to the end of the line.
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
