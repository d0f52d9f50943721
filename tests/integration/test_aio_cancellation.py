"""A task that is cancelled during a call of the asyncio client ends at every point of the call."""

import asyncio
from datetime import timedelta

import pytest

from tickwheel import aio
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

WAITERS = 20


@pytest.mark.parametrize("turns", range(0, 60, 3))
def test_cancelled_waiting_dequeues_end(tickwheel_server: PrivateServer, namespace: str, turns: int) -> None:
    """Cancel after each number of event loop turns: while connecting, sending, reading, subscribing or asleep."""

    async def cancelled() -> list[object]:
        async with aio.Tickwheel(tickwheel_server.url, namespace=namespace, shards=2) as tickwheel:
            queue = await tickwheel.create_queue("q")
            waiting = [asyncio.create_task(queue.dequeue(wait=timedelta(minutes=1))) for _ in range(WAITERS)]
            for _ in range(turns):
                await asyncio.sleep(0)
            for task in waiting:
                task.cancel()
            async with asyncio.timeout(20):
                return await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(ended) for ended in asyncio.run(cancelled())] == [asyncio.CancelledError] * WAITERS


@pytest.mark.parametrize("turns", range(0, 60, 3))
@pytest.mark.parametrize("shards", [1, 4])
def test_a_repeated_request_returns_the_messages_that_a_cancelled_dequeue_leased(
    tickwheel_server: PrivateServer, namespace: str, turns: int, shards: int
) -> None:

    async def cancelled_and_repeated() -> tuple[list[aio.Message], dict[str, int]]:
        async with aio.Tickwheel(tickwheel_server.url, namespace=namespace, shards=shards) as tickwheel:
            queue = await tickwheel.create_queue("q")
            await queue.enqueue(b"a")
            await queue.enqueue(b"b")
            asking = asyncio.create_task(queue.dequeue(request_id="worker:1", wait=timedelta(minutes=1)))
            for _ in range(turns):
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            return await queue.dequeue(request_id="worker:1"), await queue.counts()

    [message], counts = asyncio.run(cancelled_and_repeated())
    assert message.attempt == 1
    assert (counts["pending"], counts["running"]) == (1, 1)
