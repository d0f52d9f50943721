"""Threads, cancellation and the owner of an event loop: what asyncio leaves to the code that holds resources in one."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from tickwheel.errors import TickwheelError

T = TypeVar("T")

_OPEN = "open a client of its own in each"
_CLOSE = "close it in its own, or end that loop first"


async def run_in_thread(work: Callable[[], T]) -> T:
    """What ``work`` returns or raises in a thread. It runs to its end, even where the task is cancelled meanwhile.

    The cancellation follows then. So whoever hears of it can undo what was done, and nothing is done afterwards.
    """
    # Not to_thread in a task: the end of `asyncio.run` cancels every task, and the thread would go on alone.
    return await finish_despite_cancel(asyncio.get_running_loop().run_in_executor(None, work))


async def finish_despite_cancel(future: asyncio.Future[T]) -> T:
    """What it returns or raises. A cancellation of the task that waits follows once it is done."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None or future.cancelled():
        return future.result()
    raise cancelled from future.exception()


def wrong_loop_error(display_url: str, *, closing: bool = False) -> TickwheelError:
    """The error of a client that is used, opened or closed in another event loop than its own."""
    return TickwheelError(
        f"the client of {display_url} belongs to the event loop that opened it, and this is another:"
        f" {_CLOSE if closing else _OPEN}"
    )
