"""The clients of an app, and the queues that they have created. The first call opens a client; the app closes it.

In a worker, the tasks share these clients with the worker, which needs them to settle the messages. So a worker keeps
them open, and closes them at its end.
"""

import asyncio
import inspect
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakKeyDictionary

from tickwheel import aio, limits
from tickwheel.client import Queue, Tickwheel
from tickwheel.errors import Forbidden, QueueNotFound
from tickwheel.model import validation

_ENSURED_MAX = limits.QUEUES_MAX
# At the end of a worker, a task that was left behind may block the event loop, which then closes no client.
_CLOSE_S = 1.0


class AppClients:
    """One client for all threads, and one for each event loop. A forked process opens its own client."""

    def __init__(self, options: dict[str, Any], queue_config: Callable[[str], Mapping[str, Any]]) -> None:
        """``queue_config`` returns the configuration of a queue of the app by its name."""
        self.options = options
        check_client_options(options)
        self._queue_config = queue_config
        self._lock = threading.Lock()
        self._client: Tickwheel | None = None
        self._pid = os.getpid()
        self._async_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, aio.Tickwheel] = WeakKeyDictionary()
        self._ensured_queues: set[str] = set()
        # What `keep_open` keeps: the client for threads, and the function that returns the event loop.
        self._kept_client: Tickwheel | None = None
        self._kept_loop: Callable[[], asyncio.AbstractEventLoop | None] = lambda: None

    def client(self) -> Tickwheel:
        """Return the client for threads. Open it if this process has none."""
        with self._lock:
            if self._client is None or self._pid != os.getpid():
                self._ensured_queues.clear()
                self._client, self._pid = Tickwheel(**self.options), os.getpid()
            return self._client

    async def client_async(self) -> aio.Tickwheel:
        """Return the client of the running event loop. Open it if the loop has none."""
        loop = asyncio.get_running_loop()
        client = self._async_clients.get(loop)
        if client is None:
            client = self._async_clients[loop] = aio.Tickwheel(**self.options)
        return await client.open()

    def move(self, options: dict[str, Any]) -> None:
        """Close the client for threads, unless it is kept open, and drop those of event loops. Later clients use the
        changed options.
        """
        # ``url`` and ``data_dir`` exclude each other: a new value of one removes the other.
        cleared = {"url": None, "data_dir": None} if options.keys() & {"url", "data_dir"} else {}
        changed = self.options | cleared | options
        check_client_options(changed)
        self._close_client(is_moving=True)
        self._async_clients.clear()
        self.options |= changed

    def ensure_queue(self, name: str) -> Queue:
        """Return a queue of the app. Create or update it at its first use."""
        tickwheel = self.client()
        queue = tickwheel.queue(name)
        if name not in self._ensured_queues:
            try:
                tickwheel.create_queue(name, update=True, **self._queue_config(name))
            except Forbidden:
                # A producer needs no permission to create queues if a worker or an operator has created the queue.
                with explain_missing_queue(name):
                    queue.config()
            self._mark_ensured(name)
        return queue

    async def ensure_queue_async(self, name: str) -> aio.Queue:
        """Return a queue like `ensure_queue`, for asyncio."""
        tickwheel = await self.client_async()
        queue = tickwheel.queue(name)
        if name not in self._ensured_queues:
            try:
                await tickwheel.create_queue(name, update=True, **self._queue_config(name))
            except Forbidden:
                with explain_missing_queue(name):
                    await queue.config()
            self._mark_ensured(name)
        return queue

    def _mark_ensured(self, name: str) -> None:
        if len(self._ensured_queues) >= _ENSURED_MAX:
            # A namespace has no more queues, so some of these were deleted.
            self._ensured_queues.clear()
        self._ensured_queues.add(name)

    def forget_queue(self, name: str) -> None:
        """Make the next call create or update the queue again."""
        self._ensured_queues.discard(name)

    @contextmanager
    def keep_open(self, loop: Callable[[], asyncio.AbstractEventLoop | None]) -> Iterator[Tickwheel]:
        """Yield the client for threads. Keep it and the client of an event loop open until the ``with`` block ends.

        ``loop`` returns the event loop, which runs in another thread, or None if the loop does not run yet. In the
        block, `close`, `aclose` and `move` do not close these two clients. They are closed at the end of the block.
        """
        client, outer = self.client(), (self._kept_client, self._kept_loop)
        self._kept_client, self._kept_loop = client, loop
        try:
            yield client
        finally:
            self._kept_client, self._kept_loop = outer
            if (running := loop()) is not None and (async_client := self._async_clients.pop(running, None)) is not None:
                with suppress(TimeoutError):
                    asyncio.run_coroutine_threadsafe(async_client.close(), running).result(_CLOSE_S)
            self.close()
            client.close()

    def close(self) -> None:
        """Close the client for threads, unless it is kept open. The next call opens another one."""
        self._close_client()

    async def aclose(self) -> None:
        """Close the client of the running event loop, and the client for threads, unless they are kept open."""
        loop = asyncio.get_running_loop()
        if loop is not self._kept_loop() and (client := self._async_clients.pop(loop, None)) is not None:
            await client.close()
        await asyncio.to_thread(self.close)

    def _close_client(self, *, is_moving: bool = False) -> None:
        with self._lock:
            client = self._client
            is_kept = client is not None and client is self._kept_client
            if is_kept and not is_moving:
                return
            self._client = None
            self._ensured_queues.clear()
        if client is not None and not is_kept and self._pid == os.getpid():
            client.close()


def check_client_options(options: Mapping[str, Any]) -> None:
    """Raise InvalidArgument if a client would reject the options. Opens nothing."""
    validation.reject_unknown("a client", options, inspect.signature(aio.Tickwheel).parameters)
    aio.Tickwheel(**options)


@contextmanager
def explain_missing_queue(name: str) -> Iterator[None]:
    """Replace a QueueNotFound by one that explains how to create the queue."""
    try:
        yield
    except QueueNotFound as error:
        raise QueueNotFound(
            f"queue {name!r} does not exist, and this token may not create it: start a worker, or have the queue"
            " created by `tickwheel queue create`"
        ) from error
