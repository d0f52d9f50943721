"""The calls that wait for queues that are closed: queues that do not exist, or that are blocked for dequeue. No I/O.

There are no wake-ups for such a queue. Each sweep (`redis/wait_list.py`) notifies one waiting call of the queue, which
reads whether the queue is open by now. If it is, all waiting calls of the queue are notified. So the process reads the
configuration of a closed queue once a second, whatever the number of calls that wait for it. Not thread-safe.
"""

from collections import OrderedDict
from collections.abc import Iterable

from tickwheel.redis.wait_line import JointWaiter


class ClosedQueues:
    """The joint waiters of the closed queues, by queue. `JointWaiter.is_swept` is set for those to notify."""

    def __init__(self) -> None:
        # In round-robin order.
        self._waiters: dict[str, OrderedDict[JointWaiter, None]] = {}
        # The queues whose waiters were notified since the last one was added.
        self._opened: set[str] = set()

    def add(self, joint: JointWaiter) -> None:
        """Add a waiter to each of its closed queues."""
        for queue in joint.closed:
            self._waiters.setdefault(queue, OrderedDict())[joint] = None
            self._opened.discard(queue)

    def remove(self, joint: JointWaiter) -> None:
        for queue in joint.closed:
            waiters = self._waiters.get(queue, OrderedDict())
            waiters.pop(joint, None)
            if not waiters:
                self._waiters.pop(queue, None)
                self._opened.discard(queue)

    def sweep(self) -> list[JointWaiter]:
        """Choose the next waiter of each queue, and return those to notify."""
        # A queue may have been closed again before all of its waiters have read this.
        self._opened.clear()
        chosen = []
        for waiters in self._waiters.values():
            joint = next(iter(waiters))
            waiters.move_to_end(joint)
            if not joint.is_swept:
                chosen.append(joint)
                joint.is_swept = True
        return chosen

    def open(self, queues: Iterable[str]) -> list[JointWaiter]:
        """Return the waiters to notify because the queues are open."""
        chosen = []
        for queue in queues:
            # Each waiter that finds the queue open calls this method.
            if queue in self._waiters and queue not in self._opened:
                self._opened.add(queue)
                chosen += [joint for joint in self._waiters[queue] if not joint.is_swept]
                for joint in chosen:
                    joint.is_swept = True
        return chosen

    def all(self) -> set[JointWaiter]:
        """Return all waiters of closed queues."""
        return {joint for waiters in self._waiters.values() for joint in waiters}
