"""An asyncio client used from another event loop raises a clear error, and continues in its own loop."""

import asyncio
import gc
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.integration.service_thread import ServiceThread
from tickwheel import NewMessage, TickwheelError, aio
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

ANOTHER_LOOP = "belongs to the event loop that opened it"


async def in_another_loop(work: Callable[[], Awaitable[Any]]) -> Any:
    """Run the coroutine in a thread with its own loop, and return its result or raise its error."""

    async def done() -> Any:
        return await work()

    return (await asyncio.gather(asyncio.to_thread(asyncio.run, done()), return_exceptions=True))[0]


def test_a_call_from_another_event_loop_is_refused_and_the_owning_loop_continues(
    tickwheel_server: PrivateServer,
) -> None:
    async def main() -> None:
        async with aio.Tickwheel(tickwheel_server.url, namespace="loops") as tw:
            queue = tw.queue("q")
            await queue.enqueue_many([NewMessage(b"x")] * 3)
            for work in (queue.counts, queue.dequeue, queue.enqueue):
                with pytest.raises(TickwheelError, match=f"{ANOTHER_LOOP}.*open a separate client"):
                    raise await in_another_loop(work)
            in_its_own = "close the client in its own event loop, or end that loop first"
            with pytest.raises(TickwheelError, match=f"{ANOTHER_LOOP}.*{in_its_own}"):
                raise await in_another_loop(tw.close)
            [message] = await queue.dequeue()
            await message.complete()
            assert (await queue.counts())["pending"] == 2

    asyncio.run(main())
    tickwheel_server.clear("loops")


# Python's own warnings about a loop that ended before its connections.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_client_of_an_ended_event_loop_is_refused_and_can_be_closed(tickwheel_server: PrivateServer) -> None:
    tw = aio.Tickwheel(tickwheel_server.url, namespace="loops")
    asyncio.run(tw.open())
    with pytest.raises(TickwheelError, match=ANOTHER_LOOP):
        asyncio.run(tw.queue("q").counts())
    asyncio.run(tw.close())
    with pytest.raises(TickwheelError, match="is closed, or not opened yet: use the client in"):
        asyncio.run(tw.queue("q").counts())
    del tw
    gc.collect()
    tickwheel_server.clear("loops")


TWO_LOOPS = """
import asyncio, sys
from datetime import timedelta
from tickwheel import aio

async def cancelled():
    async with aio.Tickwheel(sys.argv[1], namespace=sys.argv[2]) as tickwheel:
        queue = await tickwheel.create_queue("q")
        waiting = [asyncio.create_task(queue.dequeue(wait=timedelta(minutes=1))) for _ in range(300)]
        # Sent after them all on the same connection.
        await queue.counts()
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

for _ in range(3):
    asyncio.run(cancelled())
"""


def test_a_call_cancelled_in_an_ended_event_loop_affects_no_other_call(tickwheel_server: PrivateServer) -> None:
    with ServiceThread(tickwheel_server.url) as service:
        command = [sys.executable, "-c", TWO_LOOPS, service.url, "loops"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    tickwheel_server.clear("loops")
    assert not done.stderr
