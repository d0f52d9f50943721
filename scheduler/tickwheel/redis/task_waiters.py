"""The waiters of tasks, and the pace at which their tasks are woken."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from tickwheel.redis.caller_lines import CallerLines
from tickwheel.redis.end_waits import EndWaitHandle, EndWaits
from tickwheel.redis.joint_wait import JointWaitHandle
from tickwheel.redis.wait_list import WAKEUPS_AT_ONCE, WaitList
from tickwheel.redis.waiter_handle import WaiterHandle


class WakeupPace:
    """Wakes tasks, about `WAKEUPS_AT_ONCE` of them in each turn of the event loop. The callers take turns.

    One announcement can concern thousands of waiting calls. If all their tasks were woken at once, no other task would
    run before all of them have run.
    """

    def __init__(self) -> None:
        self._left = WAKEUPS_AT_ONCE
        self._waiting = CallerLines[asyncio.Event]()

    def wake(self, event: asyncio.Event, caller: str) -> None:
        """Set the event, in this turn of the event loop or in one of the next turns."""
        if event.is_set():
            return
        if self._left == WAKEUPS_AT_ONCE:
            asyncio.get_running_loop().call_soon(self._begin_turn)
        if self._left:
            self._left -= 1
            event.set()
        else:
            self._waiting.add(event, caller)

    def _begin_turn(self) -> None:
        self._left = WAKEUPS_AT_ONCE
        if self._waiting:
            events = self._waiting.take(WAKEUPS_AT_ONCE)
            self._left -= len(events)
            asyncio.get_running_loop().call_soon(self._begin_turn)
            for event in events:
                event.set()


class TaskWaiter(WaiterHandle):
    """A task that sleeps until its queue has a message for it."""

    def __init__(
        self,
        pace: WakeupPace,
        waiters: WaitList,
        queue: str,
        check: Callable[[], None],
        where: bytes = b"",
        caller: str = "",
    ) -> None:
        self._event = asyncio.Event()
        super().__init__(waiters, queue, partial(pace.wake, self._event, caller), check, where, caller)

    async def wait(self, seconds: float) -> None:
        """Sleep until woken, for at most ``seconds``. Raises the server's error if the subscription was refused."""
        await _sleep(self._event, seconds)
        self._consume()


class JointTaskWaiter(JointWaitHandle):
    """A task that sleeps until one of its queues has a message for it."""

    def __init__(
        self,
        pace: WakeupPace,
        waiters: WaitList,
        queues: Sequence[str],
        check: Callable[[], None],
        caller: str,
        closed: Sequence[str],
    ) -> None:
        self._event = asyncio.Event()
        super().__init__(waiters, queues, partial(pace.wake, self._event, caller), check, caller, closed)

    async def wait(self, seconds: float) -> None:
        """Sleep until woken, for at most ``seconds``. Raises the server's error if a subscription was refused."""
        if self._may_sleep():
            await _sleep(self._event, seconds)
        else:
            self._event.clear()
        self._check()


class TaskEndWaiter(EndWaitHandle):
    """A task that sleeps until its message ends."""

    def __init__(
        self, pace: WakeupPace, waits: EndWaits, topic: str, field: bytes, check: Callable[[], None], caller: str
    ) -> None:
        self._event = asyncio.Event()
        super().__init__(waits, topic, field, partial(pace.wake, self._event, caller), check)

    async def wait(self, seconds: float) -> None:
        """Sleep until woken, for at most ``seconds``. Raises the server's error if the subscription was refused."""
        await _sleep(self._event, seconds)
        self._check()


async def _sleep(event: asyncio.Event, seconds: float) -> None:
    """Wait for the event, for at most ``seconds``, and clear it."""
    try:
        # Not wait_for: before Python 3.12, wait_for loses a cancellation that coincides with the wake-up.
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
    finally:
        event.clear()
