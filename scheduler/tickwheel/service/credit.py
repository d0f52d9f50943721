"""How many messages a client of a stream can take now: flow control by what it can hold, not by bytes on the way."""

import asyncio
from collections.abc import AsyncIterator

from tickwheel import arguments, limits
from tickwheel.v1.message_service_pb2 import DequeueStreamRequest


class Credit:
    """What the requests of one stream have added, less what was sent."""

    def __init__(self, requests: AsyncIterator[DequeueStreamRequest]) -> None:
        self._requests = aiter(requests)
        self._credit = 0
        self._changed = asyncio.Event()
        self._ended = False
        self._reading: asyncio.Task[None] | None = None

    async def first(self) -> DequeueStreamRequest | None:
        """The first request, which says what is wanted; None where there was none."""
        request = await anext(self._requests, None)
        if request is not None:
            self._add(request)
            self._reading = asyncio.create_task(self._read())
        return request

    async def some(self) -> int:
        """How many may be sent: waits until there are any; 0 when the client has ended the stream."""
        while not self._credit and not self._ended:
            self._changed.clear()
            await self._changed.wait()
        return 0 if self._ended else self._credit

    def spend(self, count: int) -> None:
        """So many were sent."""
        self._credit -= count

    async def _read(self) -> None:
        try:
            async for request in self._requests:
                self._add(request)
        finally:
            self._ended = True
            self._changed.set()

    def _add(self, request: DequeueStreamRequest) -> None:
        self._credit += arguments.integer("credit", request.credit, 0, limits.DEQUEUE_MESSAGES)
        self._changed.set()
