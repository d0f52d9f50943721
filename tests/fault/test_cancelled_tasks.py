"""If a task is cancelled while its replies are in flight, no other call reads these replies from a connection."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.fault.faulty_server import FaultyServer
from tickwheel import NewMessage, aio
from tickwheel.redis.topology import SINGLE
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.fault

TASKS = 8
IDS = [f"m{n}" for n in range(TASKS)]
# The client fills in the id from its request. The due time comes from the reply, also for a cancelled message: it shows
# which call the reply belongs to.
DUE = [datetime(2026, 5, 4, tzinfo=UTC) + timedelta(days=n) for n in range(TASKS)]


@asynccontextmanager
async def open_client(url: str, shards: int = 1) -> AsyncIterator[tuple[aio.Tickwheel, aio.Queue]]:
    """Open a client of a fresh namespace, with a queue of one message for each task."""
    namespace = f"cut-{os.urandom(6).hex()}"
    async with aio.Tickwheel(url, namespace=namespace, shards=shards) as tickwheel:
        queue = await tickwheel.create_queue("q")
        await queue.enqueue_many(NewMessage(id=id, due=due) for id, due in zip(IDS, DUE, strict=True))
        yield tickwheel, queue


async def check_each_call_gets_its_own_reply(queue: aio.Queue) -> None:
    """Check that concurrent calls, on all connections of the pool, get their own replies."""
    for _ in range(3):
        views = await asyncio.gather(*(queue.get(id) for id in IDS))
        assert [view.due for view in views] == DUE
        assert sum((await queue.counts()).values()) == TASKS


async def check_connections_are_clean(tickwheel: aio.Tickwheel) -> None:
    """Check that every connection is back in the pool, and that no open connection has unread data."""
    assert tickwheel._io is not None
    connections: Any = tickwheel._io._servers.pool(SINGLE)
    assert not connections._in_use_connections
    for connection in connections._available_connections:
        assert not connection.is_connected or not await connection.can_read()


async def yield_to_loop(count: int) -> None:
    """Let the other tasks of the event loop run ``count`` times."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("connected", [True, False], ids=["connected", "not-yet-connected"])
def test_replies_that_arrive_after_a_cancellation_reach_no_other_call(faulty: FaultyServer, connected: bool) -> None:
    async def cancel_before_the_reply() -> None:
        async with open_client(faulty.url) as (tickwheel, queue):
            if connected:
                await check_each_call_gets_its_own_reply(queue)
            with faulty.paused():
                calls = [asyncio.create_task(queue.get("m0")) for _ in range(TASKS)]
                # The server is frozen: each task has sent its request and waits.
                await yield_to_loop(100)
                for task in calls:
                    task.cancel()
                await yield_to_loop(100)
                # A cancellation does not wait for the server.
                assert all(task.cancelled() for task in calls)
                others = asyncio.create_task(check_each_call_gets_its_own_reply(queue))
                await yield_to_loop(100)
            await others
            await check_connections_are_clean(tickwheel)

    asyncio.run(asyncio.wait_for(cancel_before_the_reply(), 30))


@pytest.mark.parametrize("count", range(40))
def test_a_task_cancelled_at_any_point_leaves_the_next_calls_their_own_replies(
    tickwheel_server: PrivateServer, count: int
) -> None:
    """With four shards, a round trip has four replies on one connection. The cancellation may come between any two."""

    async def cancel_after(count: int) -> None:
        async with open_client(tickwheel_server.url, shards=4) as (tickwheel, queue):
            for call in (queue.counts, lambda: queue.get("m0"), lambda: queue.cancel_many(IDS)):
                task = asyncio.create_task(call())
                await yield_to_loop(count)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await check_each_call_gets_its_own_reply(queue)
                await check_connections_are_clean(tickwheel)
            tickwheel_server.clear(tickwheel._context.namespace)

    asyncio.run(asyncio.wait_for(cancel_after(count), 30))
