"""A task that is cancelled while its answers are under way leaves no connection on which another would read them."""

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
# An id comes from the question; the due time tells whose answer it is, even of a message that was cancelled.
DUE = [datetime(2026, 5, 4, tzinfo=UTC) + timedelta(days=n) for n in range(TASKS)]


@asynccontextmanager
async def opened(url: str, shards: int = 1) -> AsyncIterator[tuple[aio.Tickwheel, aio.Queue]]:
    """A client of a fresh namespace, with a queue of as many messages as there are tasks."""
    namespace = f"cut-{os.urandom(6).hex()}"
    async with aio.Tickwheel(url, namespace=namespace, shards=shards) as tickwheel:
        queue = await tickwheel.create_queue("q")
        await queue.enqueue_many(NewMessage(id=id, due=due) for id, due in zip(IDS, DUE, strict=True))
        yield tickwheel, queue


async def each_hears_its_own(queue: aio.Queue) -> None:
    """Calls at the same time, on all connections that there are, get the answers to what they asked."""
    for _ in range(3):
        found = await asyncio.gather(*(queue.get(id) for id in IDS))
        assert [view.due for view in found] == DUE
        assert sum((await queue.counts()).values()) == TASKS


async def no_connection_is_left_behind(tickwheel: aio.Tickwheel) -> None:
    """Every connection is back in the pool, and those that are open have nothing left to read."""
    assert tickwheel._io is not None
    connections: Any = tickwheel._io._servers.pool(SINGLE)
    assert not connections._in_use_connections
    for connection in connections._available_connections:
        assert not connection.is_connected or not await connection.can_read()


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("connected", [True, False], ids=["connected", "not-yet-connected"])
def test_replies_that_arrive_after_a_cancellation_reach_no_other_call(faulty: FaultyServer, connected: bool) -> None:
    async def cancelled_before_the_answer() -> None:
        async with opened(faulty.url) as (tickwheel, queue):
            if connected:
                await each_hears_its_own(queue)
            with faulty.paused():
                asking = [asyncio.create_task(queue.get("m0")) for _ in range(TASKS)]
                # The server is frozen: by now each has sent what it can, and waits.
                await turns(100)
                for task in asking:
                    task.cancel()
                await turns(100)
                # Nor does a cancellation wait for the server.
                assert all(task.cancelled() for task in asking)
                others = asyncio.create_task(each_hears_its_own(queue))
                await turns(100)
            await others
            await no_connection_is_left_behind(tickwheel)

    asyncio.run(asyncio.wait_for(cancelled_before_the_answer(), 30))


@pytest.mark.parametrize("count", range(40))
def test_a_task_cancelled_at_any_point_leaves_the_next_calls_their_own_replies(
    tickwheel_server: PrivateServer, count: int
) -> None:
    """Over four shards a round has four answers on one connection: it may be cut between any two of them."""

    async def cancelled_after(count: int) -> None:
        async with opened(tickwheel_server.url, shards=4) as (tickwheel, queue):
            for call in (queue.counts, lambda: queue.get("m0"), lambda: queue.cancel_many(IDS)):
                asking = asyncio.create_task(call())
                await turns(count)
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
                await each_hears_its_own(queue)
                await no_connection_is_left_behind(tickwheel)
            tickwheel_server.clear(tickwheel._context.namespace)

    asyncio.run(asyncio.wait_for(cancelled_after(count), 30))
