"""A sweep of the waiting dequeues of a process, without pauses."""

from tickwheel.redis.wait_list import WaitList


def sweep_all(waiters: WaitList) -> None:
    """Wake the next waiter of each queue, as the listener of the process does once a second."""
    waiters.begin_sweep()
    while waiters.sweep_part():
        pass
