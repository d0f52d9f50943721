"""The waiters of one queue, and their turns. Not thread-safe, and no I/O.

The callers take turns: each wake-up goes to the next caller, there to the next group, and there to the next waiter. So
a message reaches a waiter with a matching filter after at most one search for each other caller that has waiters with
other filters, whatever their number.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence


class Waiter:
    """One sleeping dequeue. ``notify`` wakes the dequeue. That of a task must be called in the task's event loop.

    A waiter with a ``joint`` is a member of it, see `JointWaiter`.
    """

    __slots__ = ("caller", "covers", "held_since", "holds_wakeup", "joint", "notify", "queue", "where", "woken")

    def __init__(
        self,
        queue: str,
        notify: Callable[[], None],
        where: bytes,
        caller: str,
        joint: "JointWaiter | None" = None,
    ) -> None:
        self.queue = queue
        self.notify = notify
        self.where = where
        self.caller = caller
        self.joint = joint
        self.woken = False
        # Whether the waiter was woken for a message, and has neither passed the wake-up on nor left.
        self.holds_wakeup = False
        # The number of the last sweep before the waiter was woken.
        self.held_since = 0
        # The number of the latest announcement that the waiter's search takes into account.
        self.covers = 0

    @property
    def is_eligible(self) -> bool:
        """Whether the waiter may be woken: it is not woken or searching, and no other member of its joint is."""
        return not self.woken and not self.holds_wakeup and (self.joint is None or not self.joint.is_taken)


class JointWaiter:
    """One sleeping call that waits for the messages of several queues, with a member in the line of each queue.

    One wake-up for a message *takes* the joint waiter: the other members are not woken any more, so the announcements
    of their queues go to other waiters. They are eligible again when the call sleeps again. If a queue had wake-ups in
    between for which no waiter was left, the call has ``missed`` them, and searches the queue.
    """

    __slots__ = ("caller", "closed", "dropped", "is_swept", "is_taken", "members", "missed", "notify", "to_read")

    def __init__(self, notify: Callable[[], None], caller: str = "", closed: Collection[str] = ()) -> None:
        """``closed``: the queues of the call that are closed (`redis/closed_queues.py`). They have no members."""
        self.notify = notify
        self.caller = caller
        self.closed = closed
        # The closed queues, of this call or of others, that the call has to read.
        self.to_read: Sequence[str] = ()
        self.members: dict[str, Waiter] = {}
        # Whether the call was woken because a closed queue is open.
        self.is_swept = False
        self.is_taken = False
        # By queue: the value of `Line.dropped` when the joint waiter was taken.
        self.dropped: dict[str, int] = {}
        self.missed: set[str] = set()


class Group:
    """What is known about the searches of the waiters that have the same filter, or no filter, of all callers."""

    __slots__ = ("has_filter", "searched", "searches", "size", "width")

    def __init__(self, where: bytes) -> None:
        self.has_filter = bool(where)
        # The number of waiters of all callers.
        self.size = 0
        # A search that began after this announcement found nothing.
        self.searched = -1
        # The number of waiters that hold a wake-up, and its maximum.
        self.searches, self.width = 0, 1


class _CallerWaiters:
    """The waiters of one caller."""

    __slots__ = ("by_filter", "none_at")

    def __init__(self) -> None:
        # The filters in round-robin order, each with its waiters in round-robin order.
        self.by_filter: OrderedDict[bytes, OrderedDict[Waiter, None]] = OrderedDict()
        # The value of `Line._changes` when none of the waiters was eligible for a wake-up.
        self.none_at = -1


class Line:
    """The waiters of one queue."""

    __slots__ = ("_callers", "_changes", "announcements", "dropped", "groups", "holders", "searches", "unassigned")

    def __init__(self) -> None:
        self.groups: dict[bytes, Group] = {}
        self.announcements = 0
        # The waiters that hold a wake-up, in the order in which they received it.
        self.holders: dict[Waiter, None] = {}
        # Wake-ups that no waiter holds, and the number of waiters with a filter that hold one.
        self.unassigned = self.searches = 0
        # The number of wake-ups for which no waiter was left.
        self.dropped = 0
        # In round-robin order.
        self._callers: OrderedDict[str, _CallerWaiters] = OrderedDict()
        # Increases whenever waiters may have become eligible for a wake-up. Without this number, the process would
        # check all waiters again after each search that found nothing.
        self._changes = 0

    def __contains__(self, waiter: Waiter) -> bool:
        caller = self._callers.get(waiter.caller)
        return caller is not None and waiter in caller.by_filter.get(waiter.where, ())

    def waiters(self) -> Iterator[Waiter]:
        for caller in self._callers.values():
            for waiters in caller.by_filter.values():
                yield from waiters

    def add(self, waiter: Waiter) -> None:
        """Add a waiter, as the last one of its caller and filter. A new caller or filter is the last one, too."""
        caller = self._callers.setdefault(waiter.caller, _CallerWaiters())
        caller.by_filter.setdefault(waiter.where, OrderedDict())[waiter] = None
        group = self.groups.setdefault(waiter.where, Group(waiter.where))
        group.size += 1
        waiter.covers = self.announcements
        self._changes += 1

    def remove(self, waiter: Waiter) -> None:
        """Remove a waiter that holds no wake-up."""
        caller, group = self._callers[waiter.caller], self.groups[waiter.where]
        del caller.by_filter[waiter.where][waiter]
        if not caller.by_filter[waiter.where]:
            del caller.by_filter[waiter.where]
        if not caller.by_filter:
            del self._callers[waiter.caller]
        group.size -= 1
        if not group.size:
            del self.groups[waiter.where]

    def announce(self, count: int) -> None:
        """Add ``count`` unassigned wake-ups, because messages became ready."""
        self.announcements += 1
        self.unassigned += count
        self._changes += 1

    def next_waiter(self, *, for_message: bool) -> Waiter | None:
        """Return the next waiter that is not woken or searching. It becomes the last one in the round robin.

        ``for_message``: only a waiter whose search may find a message that was announced.
        """
        for name, caller in self._callers.items():
            if for_message and caller.none_at == self._changes:
                continue
            waiter = self._next_of(caller, for_message=for_message)
            if waiter is not None:
                self._callers.move_to_end(name)
                return waiter
        return None

    def hold_wakeup(self, waiter: Waiter) -> None:
        """Give an unassigned wake-up to a waiter."""
        self.unassigned -= 1
        self.restore_wakeup(waiter)
        if waiter.where:
            self.searches += 1
            self.groups[waiter.where].searches += 1

    def restore_wakeup(self, waiter: Waiter) -> None:
        """Let a waiter hold a wake-up."""
        waiter.holds_wakeup = True
        self.holders[waiter] = None

    def drop_wakeup(self, waiter: Waiter, *, unused: bool) -> None:
        """Take the wake-up from a waiter that holds one. ``unused``: it goes to another waiter."""
        if not waiter.holds_wakeup:
            return
        waiter.holds_wakeup = False
        del self.holders[waiter]
        self.unassigned += unused
        group = self.groups[waiter.where]
        if group.has_filter:
            self.searches -= 1
            group.searches -= 1
        if self._may_find(group):
            self._changes += 1

    def make_eligible(self) -> None:
        """Note that a member of a joint waiter is eligible again."""
        self._changes += 1

    def drop_unassigned(self) -> None:
        """Drop the wake-ups for which no waiter is left. A waiter that is added later searches the queue first."""
        self.dropped += self.unassigned
        self.unassigned = 0

    def begin_search(self, waiter: Waiter, *, woken: bool) -> None:
        """Begin a search of a waiter. ``woken``: a wake-up is the reason."""
        waiter.covers = self.announcements
        if not waiter.where:
            # A waiter without a filter does not pass its wake-up on.
            self.drop_wakeup(waiter, unused=False)
        if woken and not waiter.holds_wakeup:
            self._changes += 1

    def _may_find(self, group: Group) -> bool:
        """Return whether a search of the group may find a message that was announced."""
        return not group.has_filter or group.searched < self.announcements

    def _next_of(self, caller: _CallerWaiters, *, for_message: bool) -> Waiter | None:
        for where, waiters in caller.by_filter.items():
            group = self.groups[where]
            is_full = group.has_filter and group.searches >= group.width
            if for_message and (is_full or not self._may_find(group)):
                continue
            for _ in range(len(waiters)):
                waiter = next(iter(waiters))
                # If a call was woken for another queue, it has had its turn. The next searches need not pass it again.
                waiters.move_to_end(waiter)
                if waiter.is_eligible:
                    caller.by_filter.move_to_end(where)
                    return waiter
        if for_message:
            caller.none_at = self._changes
        return None
