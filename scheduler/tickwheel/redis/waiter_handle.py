"""The handle of a dequeue that waits for one queue."""

from collections.abc import Callable

from tickwheel.redis.wait_list import WaitList


class WaiterHandle:
    """With a handle, a thread or a task becomes a `Waiter` of a `WaitList`, and leaves the list at the end."""

    def __init__(
        self,
        waiters: WaitList,
        queue: str,
        notify: Callable[[], None],
        check: Callable[[], None],
        where: bytes = b"",
        caller: str = "",
    ) -> None:
        """``check`` raises the error with which the server refused the subscription, if it did.

        ``where`` is the packed filter of the dequeue, and ``caller`` names its caller.
        """
        self._waiters = waiters
        self._check = check
        self._waiter = waiters.add(queue, notify, where, caller)

    def wake(self) -> None:
        """End the sleep, even if the queue has no message."""
        self._waiter.notify()

    def forward(self) -> None:
        self._waiters.forward(self._waiter)

    def restore(self) -> None:
        self._waiters.restore(self._waiter)

    def unsubscribe(self) -> None:
        self._waiters.remove(self._waiter)

    def _consume(self) -> None:
        self._waiters.consume(self._waiter)
        self._check()
