"""The waiting dequeues of this process, by queue, caller and filter. n messages that become ready wake n waiters.

The callers take turns (`redis/wait_line.py`). The waiters of a queue that have the same filter are a *group*, also if
they have several callers. At first, a group has one search at a time, and each search that finds messages doubles this
number. If a search finds nothing, its wake-up goes to another group. The group itself is not woken again for the
messages that were announced before the search began. So a message that no filter matches costs one search for each
caller and filter. A sweep wakes one waiter of each queue about once a second, in case a wake-up was lost. If no wake-up
can have been lost, the earlier search answers the waiter's search (`redis/shared_searches.py`).
If the queue does not exist, there are no wake-ups, and the woken waiter checks whether the queue was created.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence

from tickwheel.redis.closed_queues import ClosedQueues
from tickwheel.redis.wait_line import JointWaiter, Line, Waiter

SWEEP_S = 1.0
# The maximum number of concurrent searches of a group.
MAX_WIDTH = 1_024
# Wake-ups without a pause. They take about a millisecond, and the woken calls then take one turn of the event loop.
WAKEUPS_AT_ONCE = 20
# The maximum number of queues of a part of a sweep.
_QUEUES_AT_ONCE = 200


class WaitList:
    """The waiters of a process. Thread-safe. Does not hold its lock while it notifies waiters."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[str, Line] = {}
        self._closed_queues = ClosedQueues()
        # The queues whose wake-ups may have been lost, each with the number of waiters to wake, or None for all.
        self._lost: dict[str, int | None] = {}
        # The queues that the present sweep has not reached yet.
        self._unswept: list[str] = []
        self._last_sweep = 0.0
        self._sweep_count = 0
        # The number of wake-ups of waiters so far.
        self.wakeup_count = 0

    def add(self, queue: str, notify: Callable[[], None], where: bytes = b"", caller: str = "") -> Waiter:
        """Add a waiter for the queue and return it. The waiter is the last one of its caller and filter.

        ``where`` is the packed filter. The waiter searches the queue once, and calls `forward` if it finds nothing.
        ``caller``: all waiters of one caller share its turns.
        """
        waiter = Waiter(queue, notify, where, caller)
        with self._lock:
            self._queues.setdefault(queue, Line()).add(waiter)
        return waiter

    def add_joint(
        self, queues: Iterable[str], notify: Callable[[], None], caller: str = "", closed: Collection[str] = ()
    ) -> JointWaiter:
        """Add one waiter for all of the queues and return it. It has no filter.

        ``closed``: further queues, which are closed (`ClosedQueues`).
        """
        joint = JointWaiter(notify, caller, closed)
        with self._lock:
            self._closed_queues.add(joint)
            for queue in queues:
                member = joint.members[queue] = Waiter(queue, notify, b"", caller, joint)
                self._queues.setdefault(queue, Line()).add(member)
        return joint

    def remove_joint(self, joint: JointWaiter) -> None:
        """Remove a joint waiter. A wake-up whose queue it has not searched goes to another waiter."""
        with self._lock:
            # At once: the joint waiter must not be taken while some of its members have left.
            chosen = [waiter for member in joint.members.values() for waiter in self._leave(member)]
            readers = self._closed_queues.remove(joint)
        self._notify([*chosen, *readers])

    def on_read(self, joint: JointWaiter, queues: Sequence[str]) -> None:
        """Note that the call of a joint waiter has read the closed queues ``queues``, which it had to."""
        with self._lock:
            # In the meantime, a sweep may have chosen other queues for the call.
            if joint.to_read is queues:
                joint.to_read = ()

    def open(self, queues: Iterable[str]) -> None:
        """Wake the joint waiters that wait for these queues as closed ones, because the queues are open."""
        with self._lock:
            chosen = self._closed_queues.open(queues)
        self._notify(chosen)

    def may_sleep(self, joint: JointWaiter) -> bool:
        """Make all members eligible for wake-ups. Return False if there is a queue to search first."""
        with self._lock:
            members = joint.members.values()
            if any(member.holds_wakeup for member in members):
                return False
            if joint.is_taken:
                joint.is_taken = False
                for queue, dropped in joint.dropped.items():
                    self._queues[queue].make_eligible()
                    if self._queues[queue].dropped > dropped:
                        joint.missed.add(queue)
            must_read = joint.missed or joint.is_swept or joint.to_read
            return not must_read and not any(member.woken for member in members)

    def announced(self, joint: JointWaiter) -> tuple[list[str], bool]:
        """Return the queues that a joint waiter must search, and whether it must check its queues, as after a sweep.

        The wake-up for a message stays with the joint waiter until `consume` of the member. The queues that it missed
        are returned after the queue of such a wake-up was searched.
        """
        with self._lock:
            members = joint.members.values()
            queues = [member.queue for member in members if member.holds_wakeup]
            if not queues:
                queues = sorted(joint.missed)
                joint.missed.clear()
            swept = [member for member in members if member.woken and not member.holds_wakeup]
            for member in swept:
                member.woken = False
            is_swept, joint.is_swept = bool(swept) or joint.is_swept, False
            return queues, is_swept

    def remove(self, waiter: Waiter) -> None:
        """Remove a waiter. A wake-up that the waiter did not use goes to another waiter."""
        with self._lock:
            chosen = self._leave(waiter)
        self._notify(chosen)

    def wake(self, queue: str, count: int) -> None:
        """Wake up to ``count`` waiters, because ``count`` messages became ready."""
        with self._lock:
            line = self._queues.get(queue)
            chosen = self._announce(line, count) if line else []
        self._notify(chosen)

    def wake_all(self) -> None:
        """Wake every waiter once, because the waits end. A joint waiter searches all its queues, and gets the error."""
        with self._lock:
            for line in self._queues.values():
                for waiter in line.waiters():
                    if waiter.joint is not None:
                        waiter.joint.missed.add(waiter.queue)
            chosen = [self._wake(waiter) for line in self._queues.values() for waiter in line.waiters()]
            closed = self._closed_queues.all()
            for joint in closed:
                joint.missed.update(joint.closed)
        self._notify([*chosen, *closed])

    def note_lost(self, queue: str) -> None:
        """Note that wake-ups of a queue may have been lost: see `wake_lost_part`."""
        with self._lock:
            self._lost[queue] = None

    def wake_lost_part(self) -> bool:
        """Wake some waiters whose wake-ups may have been lost. Return whether there are more.

        With many at once, no other task of an event loop would run.
        """
        with self._lock:
            chosen = self._wake_for_lost() if self._lost else []
            has_more = bool(self._lost)
        self._notify(chosen)
        return has_more

    def sweep_part(self) -> bool:
        """Wake the next waiter of each of some queues. Return whether the sweep goes on."""
        with self._lock:
            chosen = self._sweep_part()
            has_more = bool(self._unswept)
        self._notify(chosen)
        return has_more

    def seconds_to_sweep(self) -> float:
        return max(self._last_sweep + SWEEP_S - time.monotonic(), 0)

    def sweep_if_due(self) -> None:
        """Begin a sweep about once a second: see `begin_sweep`."""
        if self.seconds_to_sweep() == 0 and not self._unswept:
            self.begin_sweep()
            self._last_sweep = time.monotonic()

    def begin_sweep(self) -> None:
        """Wake the next reader of closed queues, and let `sweep_part` wake the next waiter of each queue, in case a
        wake-up was lost.
        """
        with self._lock:
            self._unswept = list(self._queues)
            # Otherwise, `sweep_part` counts the sweep at its end.
            self._sweep_count += not self._unswept
            readers = self._closed_queues.sweep()
        self._notify(readers)

    def forward(self, waiter: Waiter) -> None:
        """Pass the wake-up of a waiter whose search found nothing to a group whose search may find the message."""
        with self._lock:
            line = self._queues[waiter.queue]
            group = line.groups[waiter.where]
            group.searched = max(group.searched, waiter.covers)
            if not waiter.woken:
                # Otherwise, the waiter was woken during the search, and will use the wake-up for its next search.
                if waiter.holds_wakeup:
                    group.width = 1
                line.drop_wakeup(waiter, unused=True)
            chosen = self._assign(line)
        self._notify(chosen)

    def consume(self, waiter: Waiter) -> bool:
        """Return whether the waiter was woken since the last call of this method. A search of the waiter begins."""
        with self._lock:
            woken, waiter.woken = waiter.woken, False
            line = self._queues.get(waiter.queue)
            if line is not None:
                line.begin_search(waiter, woken=woken)
            return woken

    def restore(self, waiter: Waiter) -> None:
        """Undo `consume` for a waiter that leaves without a search, so that `remove` passes its wake-up on."""
        with self._lock:
            waiter.woken = True
            if not waiter.where:
                self._queues[waiter.queue].restore_wakeup(waiter)

    def count(self) -> int:
        """Return the number of waiters. A joint waiter counts as one."""
        with self._lock:
            waiters = {waiter.joint or waiter for line in self._queues.values() for waiter in line.waiters()}
            return len(waiters | self._closed_queues.all())

    @property
    def has_waiters(self) -> bool:
        """Whether a call waits."""
        return bool(self._queues) or self._closed_queues.has_waiters

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

    def _wake_for_lost(self) -> list[Waiter]:
        """Choose waiters of a queue whose wake-ups may have been lost. In the end, as many are woken as it has."""
        queue, left = self._lost.popitem()
        line = self._queues.get(queue)
        if line is None:
            return []
        left = sum(group.size for group in line.groups.values()) if left is None else left
        count = min(left, WAKEUPS_AT_ONCE)
        chosen = self._announce(line, count)
        if len(chosen) < count:
            # No other waiter is eligible.
            chosen += self._announce(line, left - count)
        elif left > count:
            self._lost[queue] = left - count
        return chosen

    def _sweep_part(self) -> list[Waiter]:
        """Choose the next waiter of each of some queues."""
        chosen: list[Waiter] = []
        calls: set[object] = set()
        for _ in range(min(_QUEUES_AT_ONCE, len(self._unswept))):
            line = self._queues.get(self._unswept.pop())
            if line is not None:
                self._release_slow_searches(line)
                woken = self._assign(line)
                waiter = line.next_waiter(for_message=False)
                if waiter is not None:
                    woken.append(self._wake(waiter))
                chosen += woken
                calls.update(waiter.joint or waiter for waiter in woken)
            if not self._unswept:
                self._sweep_count += 1
            if len(calls) >= WAKEUPS_AT_ONCE:
                break
        return chosen

    def _leave(self, waiter: Waiter) -> list[Waiter]:
        """Remove a waiter, and return the waiters to notify."""
        line = self._queues.get(waiter.queue)
        if line is None or waiter not in line:
            return []
        if waiter.holds_wakeup and not waiter.woken:
            # The search found messages, so there may be more for this group.
            group = line.groups[waiter.where]
            group.width = min(group.width * 2, MAX_WIDTH)
        line.drop_wakeup(waiter, unused=waiter.woken)
        line.remove(waiter)
        chosen = self._assign(line)
        if not line.groups:
            self._queues.pop(waiter.queue, None)
        return chosen

    def _announce(self, line: Line, count: int) -> list[Waiter]:
        line.announce(count)
        return self._assign(line)

    def _assign(self, line: Line) -> list[Waiter]:
        """Give the unassigned wake-ups to waiters. Wake-ups that remain wait for the end of the current searches."""
        chosen: list[Waiter] = []
        while line.unassigned > 0 and (waiter := line.next_waiter(for_message=True)) is not None:
            line.hold_wakeup(waiter)
            waiter.held_since = self._sweep_count
            if waiter.joint is not None:
                self._take(waiter.joint)
            chosen.append(self._wake(waiter))
        if line.searches == 0:
            line.drop_unassigned()
        return chosen

    def _take(self, joint: JointWaiter) -> None:
        joint.is_taken = True
        joint.dropped = {queue: self._queues[queue].dropped for queue in joint.members}

    def _release_slow_searches(self, line: Line) -> None:
        """Let the other waiters of a group search, too, if a search lasted longer than the time between two sweeps.

        For example, a server does not answer, and messages become ready on other servers. If no other waiter takes the
        wake-up of a joint waiter, the joint waiter has missed it, and searches the queue before it sleeps again.
        """
        for waiter in list(line.holders):
            if waiter.held_since < self._sweep_count:
                line.groups[waiter.where].width = MAX_WIDTH
                line.drop_wakeup(waiter, unused=True)

    def _wake(self, waiter: Waiter) -> Waiter:
        waiter.woken = True
        self.wakeup_count += 1
        return waiter

    @staticmethod
    def _notify(chosen: Iterable[Waiter | JointWaiter]) -> None:
        for waiter in chosen:
            waiter.notify()
