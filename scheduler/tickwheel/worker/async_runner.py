"""The event loop of a worker process. The async tasks of all its consumers run on this loop."""

import asyncio
import threading
from collections.abc import Awaitable
from typing import Any

from tickwheel.tasks.exceptions import TimeLimitExceeded


class AsyncTaskLoop:
    """An event loop in its own thread. The first async task starts the loop. ``loop`` is None before."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()

    def run(self, awaitable: Awaitable[Any], limit_s: float) -> Any:
        """Run an awaitable on the loop and wait for its result in the calling thread.

        If the awaitable takes longer than ``limit_s`` seconds, cancel it and raise TimeLimitExceeded.
        """
        future = asyncio.run_coroutine_threadsafe(_run_with_limit(awaitable, limit_s), self._start())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _start(self) -> asyncio.AbstractEventLoop:
        # Without the lock, the first tasks of two consumers could start two loops.
        with self._lock:
            if self.loop is None:
                self.loop = asyncio.new_event_loop()
                threading.Thread(target=self.loop.run_forever, name="tickwheel-async-tasks", daemon=True).start()
            return self.loop


async def _run_with_limit(awaitable: Awaitable[Any], limit_s: float) -> Any:
    try:
        async with asyncio.timeout(limit_s) as limit:
            return await awaitable
    except TimeoutError:
        if limit.expired():
            raise TimeLimitExceeded from None
        raise
    except (SystemExit, KeyboardInterrupt) as error:
        # These exceptions would end the event loop and all other tasks.
        raise RuntimeError(f"{type(error).__name__}: {error}") from error
