"""A task that waits for a queue can always be cancelled."""

import asyncio

import pytest

from tickwheel.redis.wait_list import WaitList
from tickwheel.redis.wakeup_task import TaskWaiter

pytestmark = pytest.mark.unit


def not_refused() -> None:
    """Raise no error: the subscription was not refused."""


def test_a_waiter_woken_and_cancelled_at_once_is_cancelled() -> None:
    async def woken_and_cancelled() -> None:
        waiters = WaitList()
        parked = asyncio.create_task(TaskWaiter(waiters, "q", not_refused).wait(60))
        await asyncio.sleep(0)
        waiters.wake("q", 1)
        parked.cancel()
        await parked

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(woken_and_cancelled())


def test_a_waiter_wakes_when_its_queue_has_a_message() -> None:
    async def woken() -> None:
        waiters = WaitList()
        parked = asyncio.create_task(TaskWaiter(waiters, "q", not_refused).wait(60))
        await asyncio.sleep(0)
        waiters.wake("q", 1)
        await parked

    asyncio.run(asyncio.wait_for(woken(), 10))


def test_a_waiter_wakes_when_its_time_is_over() -> None:
    asyncio.run(TaskWaiter(WaitList(), "q", not_refused).wait(0.001))
