"""An asyncio client and another event loop than its own: a clear error, and its owner works on."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tickwheel import NewMessage, TickwheelError, aio
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

ANOTHER_LOOP = "belongs to the event loop that opened it"


async def in_another_loop(work: Callable[[], Awaitable[Any]]) -> Any:
    """What it returns or raises in a thread with a loop of its own."""

    async def done() -> Any:
        return await work()

    return (await asyncio.gather(asyncio.to_thread(asyncio.run, done()), return_exceptions=True))[0]


def test_another_loop_is_refused_and_the_owner_works_on(tickwheel_server: PrivateServer) -> None:
    async def main() -> None:
        async with aio.Tickwheel(tickwheel_server.url, namespace="loops") as tw:
            queue = tw.queue("q")
            await queue.enqueue_many([NewMessage(b"x")] * 3)
            for work in (queue.counts, queue.dequeue, queue.enqueue):
                with pytest.raises(TickwheelError, match=f"{ANOTHER_LOOP}.*open a client of its own"):
                    raise await in_another_loop(work)
            with pytest.raises(TickwheelError, match=f"{ANOTHER_LOOP}.*close it in its own, or end that loop first"):
                raise await in_another_loop(tw.close)
            [message] = await queue.dequeue()
            await message.complete()
            assert (await queue.counts())["pending"] == 2

    asyncio.run(main())
    tickwheel_server.clear("loops")


# Python's own complaints about a loop that ended before its connections.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_client_whose_loop_has_ended_is_refused_and_can_be_closed(tickwheel_server: PrivateServer) -> None:
    tw = aio.Tickwheel(tickwheel_server.url, namespace="loops")
    asyncio.run(tw.open())
    with pytest.raises(TickwheelError, match=ANOTHER_LOOP):
        asyncio.run(tw.queue("q").counts())
    asyncio.run(tw.close())
    with pytest.raises(TickwheelError, match="not open, or closed"):
        asyncio.run(tw.queue("q").counts())
    del tw
    gc.collect()
    tickwheel_server.clear("loops")
