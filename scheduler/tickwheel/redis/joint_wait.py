"""The handle of a call that sleeps until one of several queues has messages."""

from collections.abc import Callable, Sequence

from tickwheel.redis.wait_list import WaitList


class JointWaitHandle:
    """With a handle, a thread or a task becomes a `JointWaiter` of a `WaitList`, and leaves the list at the end.

    The methods without I/O are called by the plan (`operations/several_queues/message_wait.py`).
    """

    def __init__(
        self,
        waiters: WaitList,
        queues: Sequence[str],
        notify: Callable[[], None],
        check: Callable[[], None],
        caller: str,
        closed: Sequence[str],
    ) -> None:
        """``check`` raises the error with which the server refused a subscription, if it did.

        ``closed``: see `WaitList.add_joint`.
        """
        self._waiters = waiters
        self._check = check
        self._notify = notify
        self._joint = waiters.add_joint(queues, notify, caller, closed)

    def wake(self) -> None:
        """End the sleep, even if no queue has a message."""
        self._notify()

    def announced(self) -> tuple[list[str], bool]:
        """Return the queues to search, and whether to check the queues (`WaitList.announced`)."""
        return self._waiters.announced(self._joint)

    def closed_queues_to_read(self) -> Sequence[str]:
        """Return the closed queues of all calls that this call has to read (`redis/closed_queues.py`)."""
        return self._joint.to_read

    def on_read(self, queues: Sequence[str]) -> None:
        """Note that the call has read these queues, which `closed_queues_to_read` returned."""
        self._waiters.on_read(self._joint, queues)

    def open(self, queues: Sequence[str]) -> None:
        """Notify the calls that wait for these queues as closed ones, because the queues are open."""
        self._waiters.open(queues)

    def begin_search(self, queue: str) -> None:
        """Use the wake-up for a queue, if there is one, because a search of the queue begins."""
        member = self._joint.members.get(queue)
        if member is not None:
            self._waiters.consume(member)

    def restore(self) -> None:
        """Do nothing: a wake-up is in use only after `begin_search`, and otherwise `unsubscribe` passes it on."""

    def unsubscribe(self) -> None:
        self._waiters.remove_joint(self._joint)

    def _may_sleep(self) -> bool:
        return self._waiters.may_sleep(self._joint)
