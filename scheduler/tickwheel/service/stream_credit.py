"""Flow control of a dequeue stream. Each request of the client grants credit, and each message sent uses one unit."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from tickwheel import limits
from tickwheel.errors import InvalidArgument, LimitExceeded
from tickwheel.model import validation
from tickwheel.runtime.event_loop import abandon
from tickwheel.service.authorization import CALL
from tickwheel.service.token_quota import RETRY_AFTER_MS
from tickwheel.v1.message_service_pb2 import DequeueStreamRequest


class StreamCredit:
    """The credit that the requests of one stream have granted, less the messages sent. An async context manager."""

    def __init__(self, credit: int, requests: AsyncIterator[DequeueStreamRequest]) -> None:
        """``credit`` is that of the first request, ``requests`` are the others. Raises InvalidArgument."""
        self._requests = requests
        self._credit = 0
        self._changed = asyncio.Event()
        self._add(credit)
        self._reader = asyncio.create_task(self._read())
        self._reader.add_done_callback(lambda _: self._changed.set())

    async def __aenter__(self) -> "StreamCredit":
        return self

    async def __aexit__(self, *_: object) -> None:
        abandon(self._reader)

    async def wait_for_credit(self) -> int:
        """Wait until messages may be sent, and return their number; return 0 if the client has ended the stream.

        Raises InvalidArgument if a request grants an invalid credit, or too much.
        """
        while not self._credit and not self._reader.done():
            self._changed.clear()
            await self._changed.wait()
        if self._reader.done():
            self._reader.result()
            return 0
        return self._credit

    @contextmanager
    def on_client_close(self, callback: Callable[[], None]) -> Iterator[None]:
        """Call ``callback`` if the client ends the stream during the ``with`` block, or has ended it before."""

        def on_done(_: object) -> None:
            callback()

        self._reader.add_done_callback(on_done)
        try:
            yield
        finally:
            self._reader.remove_done_callback(on_done)

    async def outlasts(self, wait: Coroutine[Any, Any, None]) -> bool:
        """Wait, and return whether the wait has ended before the client ended the stream. If it has not, cancel it."""
        task = asyncio.ensure_future(wait)
        try:
            waits: set[asyncio.Future[None]] = {task, self._reader}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if self._reader.done():
                return False
            task.result()
            return True
        finally:
            abandon(task)

    def spend(self, count: int) -> None:
        """Subtract the number of messages sent."""
        self._credit -= count

    async def _read(self) -> None:
        async for request in self._requests:
            self._add(request.credit)
            # A request can be large, although only its credit counts.
            del request

    def _add(self, granted: int) -> None:
        credit = self._credit + validation.integer("credit", granted, 0, limits.DEQUEUE_MESSAGES)
        if credit > limits.STREAM_CREDIT:
            raise InvalidArgument(
                f"the stream would have credit for {credit} messages, and at most {limits.STREAM_CREDIT} are allowed"
            )
        self._credit = credit
        self._changed.set()


class StreamLimit:
    """The limit of the open streams of a token without the limit `waiting`.

    gRPC takes memory for a request as soon as a stream reads and the client has announced the size of the request. The
    service cannot distinguish a stream whose request never arrives whole from an idle stream. So only their number
    limits the memory.
    """

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold a stream of the current call's token in the ``with`` block. Raises LimitExceeded if it has too many."""
        caller, _ = CALL.get()
        # A service without tokens trusts its callers.
        if not caller.digest:
            yield
            return
        if caller.quota.wait_limit.limit is None and self._open[caller.name] >= limits.STREAMS:
            raise LimitExceeded(
                f"token {caller.name!r} has {self._open[caller.name]:,} streams, and a token without the limit"
                f" `waiting` may have at most {limits.STREAMS} in a process of the service, because each stream can"
                f" take {limits.REQUEST_BYTES // 2**20} MiB of memory: end a stream, or call Dequeue or EnqueueBatch"
                " instead, or set `waiting` of the token in the tokens file",
                RETRY_AFTER_MS,
            )
        self._open[caller.name] += 1
        try:
            yield
        finally:
            self._open[caller.name] -= 1
            if not self._open[caller.name]:
                del self._open[caller.name]
