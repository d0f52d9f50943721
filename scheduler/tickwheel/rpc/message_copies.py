"""Reads the messages of calls so that several large messages do not block the event loop at once.

gRPC copies a message to Python when the task that reads the message continues after its arrival. For 4 MiB, this takes
3 to 20 ms. If many large messages arrive while the event loop is busy, all their tasks would continue in the same turn
of the loop, and block the loop for the sum of these times. `MessageCopies` copies one large message in a turn.
"""

import asyncio
from collections import deque
from collections.abc import Generator
from types import coroutine
from typing import Any

from tickwheel import limits


class MessageCopies:
    """The copies of messages in one event loop. After a large message, the others wait, and then follow in their order.

    Small messages wait, too, because the size of a message is known only after its copy.
    """

    def __init__(self) -> None:
        # Invariant: if this is true, `_admit` is scheduled, or an admitted task is about to continue.
        self._is_busy = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    @coroutine
    def read(self, context: Any) -> Generator[Any, Any, Any]:
        """Return the next message of the call, or whatever else ``context.read()`` returns.

        A task that is cancelled after its message has arrived still copies the message, because the library frees the
        memory of a message only after its copy.
        """
        reading = context.read()
        cancelled: asyncio.CancelledError | None = None
        try:
            arrival = reading.send(None)
            while True:
                try:
                    yield arrival
                except BaseException as error:
                    if not isinstance(error, asyncio.CancelledError) or not arrival.done():
                        arrival = reading.throw(error)
                        continue
                    cancelled = error
                if self._is_busy:
                    cancelled = (yield from self._wait()) or cancelled
                    self._admit_later()
                arrival = reading.send(None)
        except StopIteration as end:
            message = end.value
        if not self._is_busy and isinstance(message, bytes) and len(message) > limits.UNCOUNTED_REQUEST_BYTES:
            self._is_busy = True
            self._admit_later()
        if cancelled is not None:
            # The error is in a reference cycle with this frame.
            message = None
            raise cancelled
        return message

    def _wait(self) -> Generator[Any, Any, asyncio.CancelledError | None]:
        """Wait until the task may copy its message. Return the error with which the task was cancelled meanwhile."""
        cancelled = None
        while True:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                yield from turn
            except asyncio.CancelledError as error:
                cancelled = error
            if not turn.cancelled():
                return cancelled
            if not self._is_busy:
                # `_admit` has run since the cancellation, and found no other task.
                self._is_busy = True
                return cancelled

    def _admit_later(self) -> None:
        # A timer needs two turns to wake its task. The next copy follows after them, so no task waits for two copies.
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._admit)

    def _admit(self) -> None:
        """Let the next task copy its message."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._is_busy = False
