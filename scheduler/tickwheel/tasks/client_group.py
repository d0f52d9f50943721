"""The clients with one set of options, and the queues that they have created.

An app that moves to other options gets another group. A worker keeps its group, so that a task that moves the app moves
neither the worker nor its schedules.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from tickwheel import aio, limits
from tickwheel.client import Queue, Tickwheel
from tickwheel.client.settings import call_timeout_s
from tickwheel.errors import Forbidden, InvalidArgument, PayloadTooLarge, QueueNotFound, TickwheelError
from tickwheel.model import message_content, validation
from tickwheel.model.message import EnqueueResult, NewMessage
from tickwheel.model.queue_config import QueueConfig
from tickwheel.model.validation import Duration
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.runtime.open_failure import OpenFailure, still_opening_error
from tickwheel.tasks import declared_config

C = TypeVar("C", Tickwheel, aio.Tickwheel)
_ENSURED_MAX = limits.QUEUES_MAX
# At the end of a worker, a task that was left behind may block the event loop, which then closes no client.
_CLOSE_S: Final = 1.0
_PRODUCER_TIMEOUT: Final = timedelta(milliseconds=limits.PRODUCER_RETRY_MS)


class ClientGroup:
    """One client for all threads, and one for each event loop. A forked process opens its own client."""

    def __init__(self, options: Mapping[str, Any], queue_config: Callable[[str], Mapping[str, Any]]) -> None:
        """``queue_config`` returns the configuration of a queue of the app by its name."""
        self.options = dict(options)
        # Whether the clients that are opened from now on must find their namespace, as `Tickwheel(existing=True)`.
        self.must_exist = False
        # Whether the clients that are opened from now on warn if nobody drives the namespace. A worker warns itself.
        self.warns_undriven = True
        self._queue_config = queue_config
        self._lock = threading.Lock()
        self._open_failure = OpenFailure()
        self._client: Tickwheel | None = None
        self._pid = os.getpid()
        self._async_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, aio.Tickwheel] = WeakKeyDictionary()
        self._ensured_queues: set[str] = set()
        self._log_throttle = LogThrottle()

    @property
    def timeout(self) -> timedelta:
        """How long a call is retried that has no timeout of its own."""
        return validation.as_timedelta(self._client_options()["timeout"])

    def client(self, timeout: Duration | None = None) -> Tickwheel:
        """Return the client for threads. Open it if this process has none, within ``timeout``."""
        failures = self._open_failure.count
        if not self._lock.acquire(timeout=-1 if timeout is None else call_timeout_s(timeout)):
            raise still_opening_error()
        try:
            if self._client is None or self._pid != os.getpid():
                timeout_s = call_timeout_s(self.timeout if timeout is None else timeout)
                self._open_failure.raise_since(failures, timeout_s)
                self._ensured_queues.clear()
                with self._open_failure.record(timeout_s):
                    client = Tickwheel(**self._client_options(), open_timeout=timeout)
                    self._client, self._pid = self._set_up(client), os.getpid()
            return self._client
        finally:
            self._lock.release()

    async def client_async(self, timeout: Duration | None = None) -> aio.Tickwheel:
        """Return the client of the running event loop. Open it if the loop has none, within ``timeout``."""
        loop = asyncio.get_running_loop()
        client = self._async_clients.get(loop)
        if client is None:
            # A client refers to its loop, so the dictionary would keep both, for example for each `asyncio.run`.
            for reference in self._async_clients.keyrefs():
                if (other := reference()) is not None and other.is_closed():
                    self._async_clients.pop(other, None)
            client = self._async_clients[loop] = self._set_up(aio.Tickwheel(**self._client_options()))
        return await client.open(timeout=timeout)

    def ensure_queue(self, name: str, timeout: Duration | None = None) -> Queue:
        """Return a queue of the app. Create or update it at its first use. If the server forbids this, check it.

        ``timeout`` is that of the call. Raises QueueConfigConflict, also in the check.
        """
        tickwheel = self.client(timeout)
        queue = tickwheel.queue(name)
        if self._must_declare(name, tickwheel):
            try:
                tickwheel.create_queue(name, update=True, timeout=timeout, **self._queue_config(name))
            except Forbidden:
                # A producer needs no permission to create queues if a worker or an operator has created the queue.
                with self._explain_missing_queue(name):
                    self._check_existing(name, queue.config(timeout=timeout))
            self._mark_ensured(name)
        return queue

    async def ensure_queue_async(self, name: str, timeout: Duration | None = None) -> aio.Queue:
        """Return a queue like `ensure_queue`, for asyncio."""
        tickwheel = await self.client_async(timeout)
        queue = tickwheel.queue(name)
        if self._must_declare(name, tickwheel):
            try:
                await tickwheel.create_queue(name, update=True, timeout=timeout, **self._queue_config(name))
            except Forbidden:
                with self._explain_missing_queue(name):
                    self._check_existing(name, await queue.config(timeout=timeout))
            self._mark_ensured(name)
        return queue

    def enqueue(self, queue: str, message: NewMessage, timeout: Duration | None = None) -> EnqueueResult:
        """Send a message to a queue of the app. Raises errors like `Queue.enqueue`."""
        try:
            return self.ensure_queue(queue, timeout).enqueue_many([message], timeout=timeout)[0]
        except (QueueNotFound, PayloadTooLarge) as error:
            if not self._may_have_lost_settings(queue, message, error):
                raise
            self.forget_queue(queue)
            return self.ensure_queue(queue, timeout).enqueue_many([message], timeout=timeout)[0]

    async def enqueue_async(self, queue: str, message: NewMessage, timeout: Duration | None = None) -> EnqueueResult:
        """Send a message like `enqueue`, with the client of the running event loop."""
        try:
            return (await (await self.ensure_queue_async(queue, timeout)).enqueue_many([message], timeout=timeout))[0]
        except (QueueNotFound, PayloadTooLarge) as error:
            if not self._may_have_lost_settings(queue, message, error):
                raise
            self.forget_queue(queue)
            return (await (await self.ensure_queue_async(queue, timeout)).enqueue_many([message], timeout=timeout))[0]

    def refresh_queue(self, name: str) -> None:
        """Create or update a queue of the app again, because it may have been deleted since its first use."""
        with suppress(Forbidden):
            self.client().create_queue(name, update=True, **self._queue_config(name))

    def forget_queue(self, name: str) -> None:
        """Make the next call create or update the queue again."""
        self._ensured_queues.discard(name)

    def close(self) -> None:
        """Close the client for threads. The next call opens another one."""
        with self._lock:
            client, self._client = self._client, None
            self._ensured_queues.clear()
        if client is not None and self._pid == os.getpid():
            client.close()

    async def close_async(self) -> None:
        """Close the client of the running event loop. The next call opens another one."""
        if (client := self._async_clients.pop(asyncio.get_running_loop(), None)) is not None:
            await client.close()

    def close_in_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close the client of an event loop that runs in another thread."""
        if loop in self._async_clients:
            with suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(self.close_async(), loop).result(_CLOSE_S)

    def _client_options(self) -> dict[str, Any]:
        """Return the arguments of a client, with the timeout of producers if none is set."""
        options = dict(self.options)
        if options.get("timeout") is None:
            options["timeout"] = _PRODUCER_TIMEOUT
        if self.must_exist:
            options["existing"] = True
        return options

    def _set_up(self, client: C) -> C:
        if not self.warns_undriven:
            client._processes.notice.turn_off()
        return client

    def _must_declare(self, name: str, client: Tickwheel | aio.Tickwheel) -> bool:
        """Return whether the client must create or update the queue before it uses it, and let it expect this queue."""
        backend = client._untraced_backend
        if name in self._ensured_queues and backend.is_expected(name):
            return False
        # If the declaration fails, the next call must declare the queue again.
        self._ensured_queues.discard(name)
        backend.expect_queue(name)
        return True

    def _mark_ensured(self, name: str) -> None:
        if len(self._ensured_queues) >= _ENSURED_MAX:
            # A namespace has no more queues, so some of these were deleted.
            self._ensured_queues.clear()
        self._ensured_queues.add(name)

    def _may_have_lost_settings(self, queue: str, message: NewMessage, error: TickwheelError) -> bool:
        """Return whether the queue may have been deleted after this group has created it.

        Then it does not exist, or the next enqueue of any client has created it again, with the default settings.
        """
        if isinstance(error, QueueNotFound):
            return True
        try:
            message_content.payload(message.payload, self._queue_config(queue).get("payload_limit") or 0)
        except InvalidArgument:
            return False
        return True

    def _check_existing(self, name: str, existing: QueueConfig) -> None:
        declared_config.check_existing(name, existing, self._queue_config(name), self._log_throttle)

    @contextmanager
    def _explain_missing_queue(self, name: str) -> Iterator[None]:
        """Replace a QueueNotFound by one that explains how to create the queue."""
        try:
            yield
        except QueueNotFound as error:
            declared, namespace = self._queue_config(name), str(self.options["namespace"])
            raise declared_config.missing_queue_error(name, declared, namespace) from error
