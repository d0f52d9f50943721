"""A closed client refuses calls with an error, may be closed again, and leaves its messages."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from tests.integration.blocking_aio import aio_sandbox
from tests.support.wait_until import eventually, eventually_in_task
from tickwheel import Tickwheel, TickwheelError, aio
from tickwheel.testing import PrivateServer, sandbox

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("opened", [sandbox, aio_sandbox], ids=["blocking", "asyncio"])
def test_a_closed_client_refuses_calls_and_leaves_its_messages(
    tickwheel_server: PrivateServer, opened: Callable[..., Any]
) -> None:
    with opened(tickwheel_server) as (tickwheel, _):
        tickwheel.queue("q").enqueue(b"stays", id="m")
        tickwheel.close()
        with pytest.raises(TickwheelError, match="closed"):
            tickwheel.queue("q").get("m")
        tickwheel.close()
        with Tickwheel(tickwheel_server.url, namespace=tickwheel._context.namespace) as other:
            assert other.queue("q").get("m").payload == b"stays"


def test_closing_a_client_ends_its_waiting_dequeues_and_leases_nothing_more(tickwheel_server: PrivateServer) -> None:
    with sandbox(tickwheel_server) as (tickwheel, _), ThreadPoolExecutor() as threads:
        namespace = tickwheel._context.namespace
        tickwheel.create_queue("q")
        closed = Tickwheel(tickwheel_server.url, namespace=namespace)
        # A dequeue of a queue that does not exist waits without a subscription.
        waiting = [
            threads.submit(closed.queue(name).dequeue, wait=timedelta(hours=1)) for name in ("q", "q", "missing")
        ]
        with tickwheel_server.client() as client:
            eventually(lambda: client.pubsub_shardchannels(f"{namespace}:*"), "the dequeues wait")
        closed.close()
        for call in waiting:
            # The dequeues are asleep, or poll once more before they sleep.
            with pytest.raises(TickwheelError, match=r"is closed: open a new one|was closed before"):
                call.result(timeout=20)
        tickwheel.queue("q").enqueue(id="m")
        assert tickwheel.queue("q").counts()["pending"] == 1


def test_closing_an_asyncio_client_ends_its_waiting_dequeues(tickwheel_server: PrivateServer) -> None:
    async def closed() -> None:
        async with aio.Tickwheel(tickwheel_server.url, namespace="closed") as tickwheel:
            queue = await tickwheel.create_queue("q")
            waiting = [asyncio.create_task(queue.dequeue(wait=timedelta(hours=1))) for _ in range(3)]
            with tickwheel_server.client() as client:
                await eventually_in_task(lambda: client.pubsub_shardchannels("closed:*"), "they listen")
        for call in waiting:
            with pytest.raises(TickwheelError, match="closed"):
                await call

    asyncio.run(asyncio.wait_for(closed(), 60))
    tickwheel_server.clear("closed")


def test_an_asyncio_client_that_was_never_opened_raises_an_error(tickwheel_server: PrivateServer) -> None:
    with pytest.raises(TickwheelError, match="not open"):
        asyncio.run(aio.Tickwheel(tickwheel_server.url).queues())
