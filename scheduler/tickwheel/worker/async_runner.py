"""The event loop of a worker process. The async tasks of all its consumers run on this loop."""

import asyncio
import threading
from collections.abc import Awaitable
from concurrent.futures import wait
from typing import Any

from tickwheel.runtime.forked_child import end_forked_children
from tickwheel.tasks.exceptions import TimeLimitExceeded

# A task may ignore its cancellation, or block the event loop.
_STOP_S = 2.0


class AsyncTaskLoop:
    """An event loop in its own thread. The first async task starts the loop. ``loop`` is None before."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def run(self, awaitable: Awaitable[Any], limit_s: float) -> Any:
        """Run an awaitable on the loop and wait for its result in the calling thread.

        If the awaitable takes longer than ``limit_s`` seconds, cancel it and raise TimeLimitExceeded.
        """
        loop = self._start()
        future = asyncio.run_coroutine_threadsafe(_run_with_limit(awaitable, limit_s), loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def cancel_tasks(self) -> None:
        """Cancel all asyncio tasks on the loop, and wait until they have ended, for at most 2 s."""
        if self.loop is not None:
            cancelling = asyncio.run_coroutine_threadsafe(_cancel_other_tasks(), self.loop)
            wait([cancelling], _STOP_S)
            cancelling.cancel()

    def close(self) -> None:
        """Stop the loop, also if asyncio tasks still run on it, and end its thread. No task continues afterwards.

        If a task blocks the loop for more than 2 s, the thread ends later, as soon as the task awaits.
        """
        if self.loop is not None and self._thread is not None:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(_STOP_S)

    def _start(self) -> asyncio.AbstractEventLoop:
        # Without the lock, the first tasks of two consumers could start two loops.
        with self._lock:
            if self.loop is None:
                loop = asyncio.new_event_loop()
                thread = threading.Thread(
                    target=_run_until_stopped, args=[loop], name="tickwheel-async-tasks", daemon=True
                )
                try:
                    thread.start()
                except BaseException:
                    # The system may refuse the thread. The next task tries again.
                    loop.close()
                    raise
                self.loop, self._thread = loop, thread
            return self.loop


def _run_until_stopped(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


async def _cancel_other_tasks() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _run_with_limit(awaitable: Awaitable[Any], limit_s: float) -> Any:
    try:
        # The event loop would run on in a forked child.
        with end_forked_children():
            async with asyncio.timeout(limit_s) as limit:
                return await awaitable
    except TimeoutError:
        if limit.expired():
            raise TimeLimitExceeded from None
        raise
    except (SystemExit, KeyboardInterrupt) as error:
        # These exceptions would end the event loop and all other tasks.
        raise RuntimeError(f"{type(error).__name__}: {error}") from error
