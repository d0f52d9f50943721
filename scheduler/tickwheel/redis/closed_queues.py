"""The calls that wait for queues that are closed: queues that do not exist, or that are blocked for dequeue. No I/O.

There are no wake-ups for such a queue. Each sweep (`redis/wait_list.py`) chooses one waiting call of the process, the
*reader*. The reader reads with one command the configurations of up to `MAX_READ` closed queues, whatever calls wait
for them, and only the waiters of the queues that are open by now are notified. So a sweep costs one command, whatever
the number of calls and queues. If there are more queues, the callers take turns, and each caller's queues do. If a
reader leaves before it has read, another waiter becomes the reader. Not thread-safe.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence

from tickwheel.redis.wait_line import JointWaiter

# The maximum number of closed queues that a sweep reads.
MAX_READ = 250


class ClosedQueues:
    """The joint waiters of the closed queues, by caller and queue."""

    def __init__(self) -> None:
        # By caller and queue: the number of waiters. Callers and queues are in the order in which they are read.
        self._queues: OrderedDict[str, OrderedDict[str, int]] = OrderedDict()
        # By queue: the waiters of all callers.
        self._waiters: dict[str, dict[JointWaiter, None]] = {}
        # By caller: the waiters. Callers and waiters are in the order in which they become readers.
        self._readers: OrderedDict[str, OrderedDict[JointWaiter, None]] = OrderedDict()
        # The queues whose waiters were notified since the last one was added.
        self._opened: set[str] = set()

    def add(self, joint: JointWaiter) -> None:
        """Add a waiter to each of its closed queues."""
        if not joint.closed:
            return
        queues = self._queues.setdefault(joint.caller, OrderedDict())
        for queue in joint.closed:
            queues[queue] = queues.get(queue, 0) + 1
            self._waiters.setdefault(queue, {})[joint] = None
            self._opened.discard(queue)
        self._readers.setdefault(joint.caller, OrderedDict())[joint] = None

    def remove(self, joint: JointWaiter) -> list[JointWaiter]:
        """Remove a waiter. Return the waiter to notify that reads instead, if the removed one had to read queues."""
        readers = self._readers.get(joint.caller, OrderedDict())
        if joint not in readers:
            return []
        del readers[joint]
        queues = self._queues[joint.caller]
        for queue in joint.closed:
            queues[queue] -= 1
            if not queues[queue]:
                del queues[queue]
            del self._waiters[queue][joint]
            if not self._waiters[queue]:
                del self._waiters[queue]
        if not readers:
            del self._readers[joint.caller], self._queues[joint.caller]
        unread, joint.to_read = joint.to_read, ()
        return self._choose_reader(unread)

    def sweep(self) -> list[JointWaiter]:
        """Choose the queues to read, and return the waiter to notify, which reads them."""
        # A queue may have been closed again before all of its waiters have read this.
        self._opened.clear()
        chosen: dict[str, None] = {}
        size = min(MAX_READ, len(self._waiters))
        turns = deque((caller, len(queues)) for caller, queues in self._queues.items())
        while turns and len(chosen) < size:
            caller, left = turns.popleft()
            queues = self._queues[caller]
            self._queues.move_to_end(caller)
            while left:
                left -= 1
                queue = next(iter(queues))
                queues.move_to_end(queue)
                # A queue that is chosen already costs the caller no turn: many callers may wait for the same queues.
                if queue not in chosen:
                    chosen[queue] = None
                    break
            if left:
                turns.append((caller, left))
        return self._choose_reader(tuple(chosen))

    def open(self, queues: Iterable[str]) -> list[JointWaiter]:
        """Return the waiters to notify because the queues are open."""
        chosen = []
        for queue in queues:
            # Each waiter that finds the queue open calls this method.
            if queue in self._opened:
                continue
            self._opened.add(queue)
            for joint in self._waiters.get(queue, ()):
                if not joint.is_swept:
                    joint.is_swept = True
                    chosen.append(joint)
        return chosen

    @property
    def has_waiters(self) -> bool:
        """Whether a call waits for a closed queue."""
        return bool(self._readers)

    def all(self) -> set[JointWaiter]:
        """Return all waiters of closed queues."""
        return {joint for waiters in self._readers.values() for joint in waiters}

    def _choose_reader(self, queues: Sequence[str]) -> list[JointWaiter]:
        """Let the next waiter of the next caller read the queues. Return the waiter, if there is one."""
        if not queues or not self._readers:
            return []
        caller, waiters = next(iter(self._readers.items()))
        joint = next(iter(waiters))
        self._readers.move_to_end(caller)
        waiters.move_to_end(joint)
        joint.to_read = queues
        return [joint]
