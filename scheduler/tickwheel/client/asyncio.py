"""The asyncio client: the same methods as `tickwheel.Tickwheel`, with `await`. Both clients run the same plans.

async with tickwheel.aio.Tickwheel() as tw:
    await tw.queue("mail").enqueue(b"…")
"""

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Self

from tickwheel.client import connect
from tickwheel.client.asyncio_namespace import NamespaceMethods
from tickwheel.client.settings import ClientSettings, call_timeout_s
from tickwheel.limits import PRODUCER_RETRY_MS
from tickwheel.model.validation import Duration
from tickwheel.operations.namespace_options import NamespaceOptions
from tickwheel.runtime.event_loop import finish_despite_cancel, run_in_thread, wrong_loop_error
from tickwheel.runtime.open_failure import OpenFailure, still_opening_error


class Tickwheel(NamespaceMethods):
    """A delay scheduler and priority queue for asyncio; the parameters are those of `tickwheel.Tickwheel`.

    Without ``timeout``, the calls of producers (`enqueue`, `enqueue_many`, `cancel`, `cancel_many`, `reschedule`,
    `get`) give up after 5 s instead of 30 s, because they are often part of a web request.

    Use the client in an ``async with`` statement, or call `open` and `close`. An open client belongs to one event loop.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str = "tw",
        shards: int | None = None,
        data_dir: str | Path | None = None,
        durability: str | None = None,
        drive: bool | None = None,
        history: str | None = None,
        auto_create: bool | None = None,
        clock_guard: Duration | None = None,
        outbox_limit: int | None = None,
        outbox_full: str | None = None,
        existing: bool = False,
        timeout: Duration | None = None,
        open_timeout: Duration | None = None,
        clock: str = "_clock",
    ) -> None:
        settings = ClientSettings.validate(
            url, namespace, data_dir, durability, drive, timeout, producer_retry_ms=PRODUCER_RETRY_MS
        )
        super().__init__(settings, clock)
        self._namespace_options = NamespaceOptions.parse(
            shards, history, auto_create, clock_guard, outbox_limit, outbox_full, existing
        )
        self._open_timeout = open_timeout
        if open_timeout is not None:
            call_timeout_s(open_timeout)
        # The event loop in which `open` or `close` was last called, and the lock that both hold in this loop.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()
        self._open_failure = OpenFailure()

    async def open(self, *, timeout: Duration | None = None) -> Self:
        """Connect. If the options require it, start the embedded server and the event process.

        ``timeout``: how long to try to reach the server, up to 30 s (default: ``open_timeout`` of the client, else its
        ``timeout``, else 30 s). If the client is already open, do nothing. Raises TickwheelError if the client is open
        in another event loop.
        """
        timeout = self._open_timeout if timeout is None else timeout
        timeout_s = self._client_settings.timeout_s if timeout is None else call_timeout_s(timeout)
        failures = self._open_failure.count
        lock = self._lifecycle_lock()
        try:
            async with asyncio.timeout(None if timeout is None else timeout_s):
                await lock.acquire()
        except TimeoutError:
            raise still_opening_error() from None
        try:
            if self._io is None or not self._io.owned_by_this_process:
                self._open_failure.raise_since(failures, timeout_s)
                with self._open_failure.record(timeout_s):
                    await self._open(timeout)
        finally:
            lock.release()
        return self

    async def close(self) -> None:
        """Close the connections; messages stay on the server. Closing a closed client does nothing.

        Waits for an `open` that is in progress. Raises TickwheelError if the client belongs to another event loop that
        is not closed.
        """
        async with self._lifecycle_lock(closing=True):
            await finish_despite_cancel(asyncio.create_task(self._close()))

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Tickwheel {self._client_settings.display_url} namespace={self._context.namespace!r}>"

    def _lifecycle_lock(self, *, closing: bool = False) -> asyncio.Lock:
        """Return the lock for `open` and `close`. Raises TickwheelError if the client belongs to another event loop."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            taken = self._lock.locked() or (self._io is not None and self._io.owned_by_this_process)
            ended = self._loop is not None and self._loop.is_closed()
            if taken and not (closing and ended):
                raise wrong_loop_error(self._client_settings.display_url, closing=closing)
            # asyncio binds a lock to the loop of the first task that waits for it, so a new loop needs a new lock.
            self._loop, self._lock = loop, asyncio.Lock()
        return self._lock

    async def _open(self, timeout: Duration | None) -> None:
        try:
            server_url = await run_in_thread(self._processes.open)
            self._io = connect.asyncio_executor(self._client_settings, self._context, self._processes, server_url)
            await self._run(self._backend.open(self._namespace_options), timeout=timeout)
            await run_in_thread(self._processes.start_driving)
        except BaseException:
            await finish_despite_cancel(asyncio.create_task(self._close()))
            raise

    async def _close(self) -> None:
        io, self._io = self._io, None
        try:
            if io is not None:
                await io.close()
        finally:
            await run_in_thread(self._processes.close)
