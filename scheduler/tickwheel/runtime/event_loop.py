"""Helpers for asyncio: run work in a thread, wait despite a cancellation, read standard input, check the event loop."""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

from tickwheel.errors import TickwheelError

T = TypeVar("T")

_OPEN = "open a separate client in each event loop"
_CLOSE = "close the client in its own event loop, or end that loop first"


async def run_in_thread(work: Callable[[], T]) -> T:
    """Run ``work`` in a thread and return its result.

    If the task is cancelled, the cancellation is raised after ``work`` has ended. The caller can then undo the work
    safely, because no thread continues.
    """
    # Not asyncio.to_thread: if its task is cancelled, as at the end of `asyncio.run`, the thread continues alone.
    return await finish_despite_cancel(asyncio.get_running_loop().run_in_executor(None, work))


async def run_in_daemon_thread(work: Callable[[], T]) -> T:
    """Run ``work`` in a thread of its own and return its result.

    If the task is cancelled, the thread continues alone. It does not keep the process from ending, so ``work`` may hang
    indefinitely, for example on a file of an unreachable file system.
    """
    done: Future[T] = Future()
    # A cancellation must not change the future, which the thread still sets.
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    Thread(target=run, daemon=True).start()
    return await asyncio.wrap_future(done)


async def finish_despite_cancel(future: asyncio.Future[T]) -> T:
    """Wait for the future and return its result. A cancellation of the waiting task is raised after the future ends."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None or future.cancelled():
        return future.result()
    raise cancelled from future.exception()


async def open_standard_input() -> asyncio.StreamReader:
    """Return a reader of standard input, which must be a pipe."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


def wrong_loop_error(display_url: str, *, closing: bool = False) -> TickwheelError:
    """Return the error for a client that is used, opened or closed in another event loop than its own."""
    return TickwheelError(
        f"the client of {display_url} belongs to the event loop that opened it, and not to this one:"
        f" {_CLOSE if closing else _OPEN}"
    )
