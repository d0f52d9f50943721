"""Reads the messages of calls so that several large messages do not block the event loop at once.

gRPC copies a message to Python when the task that reads the message continues after its arrival. For 4 MiB, this takes
3 to 20 ms. If many large messages arrive while the event loop is busy, all their tasks would continue in the same turn
of the loop, and block the loop for the sum of these times. `MessageCopies` copies one large message in a turn.

`grpc.aio` accepts one new call in one to three turns. So if only two turns passed between two copies, the calls of
others would wait for one copy for each call that arrived before theirs. With more turns between two copies, they wait
for a few copies: a turn without a copy takes less than 0.1 ms.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from types import coroutine
from typing import Any, Final

from tickwheel import limits

# Two turns pass after a large message, and one more for this number of its bytes, up to this number of turns. With two
# turns in all, 64 concurrent requests of 4 MiB of one caller made the calls of others wait for 0.5 to 1.1 s (p99); with
# 10 turns, for 0.1 s. If the others have 64 calls at a time, too: 1.1 s with 10 turns, 0.3 s with 32, 0.2 s with 62.
# Requests of 160 KB with many fields take the loop for as long, but after their copy: 64 of them made 16 concurrent
# calls of another caller wait for 0.4 s with four turns, and for 0.2 s with 62.
_BYTES_OF_A_TURN: Final = 2 * 1024
_MORE_TURNS_MAX: Final = 60
# As many small messages are copied in about the time of one large message. If each message were a turn, the calls of a
# caller with 64 small ones would wait for 1 s.
_SMALL_COPIES: Final = 64


class MessageCopies:
    """The copies of messages in one event loop. After a large message, the others wait, and then follow in turns of
    their callers. The turn of a caller ends with a large message, or after `_SMALL_COPIES` small ones.

    Small messages wait, too, because the size of a message is known only after its copy. So if one caller has large
    messages, the small ones of another caller wait for two copies at most.
    """

    def __init__(self, name_caller: Callable[[Any], str]) -> None:
        """``name_caller`` returns the name of the caller of a call with this context."""
        self._name_caller = name_caller
        # Invariant: if this is true, `_admit` is scheduled, or an admitted task is about to continue.
        self._is_busy = False
        # The number of turns of the event loop for which `_admit` waits.
        self._turns_left = 0
        # By caller; it is the turn of the first caller, who has copied this number of messages in it.
        self._copied = 0
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @coroutine
    def read(self, context: Any) -> Generator[Any, Any, Any]:
        """Return the next message of the call, or whatever else ``context.read()`` returns.

        A task that is cancelled after its message has arrived still copies the message, because the library frees the
        memory of a message only after its copy.
        """
        reading = context.read()
        cancelled: asyncio.CancelledError | None = None
        caller: str | None = None
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
                    caller = self._name_caller(context)
                    cancelled = (yield from self._wait(caller)) or cancelled
                    self._admit_later()
                arrival = reading.send(None)
        except StopIteration as end:
            message = end.value
        is_large = isinstance(message, bytes) and len(message) > limits.UNCOUNTED_REQUEST_BYTES
        if is_large:
            self._turns_left = min(len(message) // _BYTES_OF_A_TURN, _MORE_TURNS_MAX)
            if not self._is_busy:
                self._is_busy = True
                self._admit_later()
        if caller is not None:
            self._count_copy(caller, is_large)
        if cancelled is not None:
            # The error is in a reference cycle with this frame.
            message = None
            raise cancelled
        return message

    def _wait(self, caller: str) -> Generator[Any, Any, asyncio.CancelledError | None]:
        """Wait until the task may copy its message. Return the error with which the task was cancelled meanwhile."""
        cancelled = None
        while True:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(caller, deque()).append(turn)
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
        # The task copies its message before `_admit` runs, which then knows whether the message was large.
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._admit)

    def _admit(self) -> None:
        """Let the next task copy its message, once enough turns have passed since the last large one."""
        if self._turns_left:
            self._turns_left -= 1
            asyncio.get_running_loop().call_soon(self._admit)
            return
        while self._waiting:
            caller = next(iter(self._waiting))
            line = self._waiting[caller]
            turn = line.popleft()
            if not line:
                del self._waiting[caller]
                self._copied = 0
            # The futures of cancelled tasks are done.
            if not turn.done():
                turn.set_result(None)
                return
        self._is_busy = False

    def _count_copy(self, caller: str, is_large: bool) -> None:
        """End the turn of the caller if it is over."""
        self._copied += 1
        if is_large or self._copied >= _SMALL_COPIES:
            self._copied = 0
            if line := self._waiting.pop(caller, None):
                self._waiting[caller] = line
