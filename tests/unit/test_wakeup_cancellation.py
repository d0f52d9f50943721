"""A task that waits for a queue can always be cancelled."""

import asyncio
from itertools import pairwise

import pytest

from tickwheel.redis.task_waiters import TaskWaiter, WakeupPace
from tickwheel.redis.wait_list import WAKEUPS_AT_ONCE, WaitList

pytestmark = pytest.mark.unit


def not_refused() -> None:
    """Raise no error: the subscription was not refused."""


def test_a_waiter_woken_and_cancelled_at_once_is_cancelled() -> None:
    async def woken_and_cancelled() -> None:
        waiters = WaitList()
        parked = asyncio.create_task(TaskWaiter(WakeupPace(), waiters, "q", not_refused).wait(60))
        await asyncio.sleep(0)
        waiters.wake("q", 1)
        parked.cancel()
        await parked

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(woken_and_cancelled())


def test_a_waiter_wakes_when_its_queue_has_a_message() -> None:
    async def woken() -> None:
        waiters = WaitList()
        parked = asyncio.create_task(TaskWaiter(WakeupPace(), waiters, "q", not_refused).wait(60))
        await asyncio.sleep(0)
        waiters.wake("q", 1)
        await parked

    asyncio.run(asyncio.wait_for(woken(), 10))


def test_a_waiter_wakes_when_its_time_is_over() -> None:
    asyncio.run(TaskWaiter(WakeupPace(), WaitList(), "q", not_refused).wait(0.001))


def test_tasks_are_woken_in_parts() -> None:
    """One announcement can wake thousands of tasks."""

    async def wake_many() -> list[int]:
        pace, woken = WakeupPace(), 0
        events = [asyncio.Event() for _ in range(2 * WAKEUPS_AT_ONCE + 5)]

        async def wait(event: asyncio.Event) -> None:
            nonlocal woken
            await event.wait()
            woken += 1

        tasks = [asyncio.create_task(wait(event)) for event in events]
        await asyncio.sleep(0)
        for event in events:
            pace.wake(event, "many")
            # An event that is woken twice counts once.
            pace.wake(event, "many")
        # Callers take turns.
        pace.wake(other := asyncio.Event(), "other")
        counts: list[int] = []
        others: list[bool] = []
        while not counts or counts[-1] < len(events):
            await asyncio.sleep(0)
            counts.append(woken)
            others.append(other.is_set())
        await asyncio.gather(*tasks)
        # Later wake-ups need not wait.
        await asyncio.sleep(0)
        pace.wake(last := asyncio.Event(), "many")
        assert last.is_set()
        assert others[:2] == [True, True]
        return counts

    counts = asyncio.run(wake_many())
    assert max(after - before for before, after in pairwise([0, *counts])) == WAKEUPS_AT_ONCE
