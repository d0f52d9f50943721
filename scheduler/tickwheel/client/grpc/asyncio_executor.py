"""The same as `blocking_io` on a channel of an event loop."""

import asyncio
from contextlib import suppress
from typing import Any, Final, TypeVar

import grpc
import grpc.aio

from tickwheel import tracing
from tickwheel.client.grpc.call_retry import Calling, of_the_server_itself
from tickwheel.client.grpc.dequeue_batcher import Polls
from tickwheel.client.grpc.handshake_probe import Handshake
from tickwheel.plan import Ask, Plan
from tickwheel.redis.asyncio_executor import another_loop, in_thread
from tickwheel.rpc.methods import METHODS
from tickwheel.runtime.log_throttle import Seldom
from tickwheel.runtime.process_guard import Gate

# A process has one poller of grpc for all its event loops. What it has yet to say of calls that were cancelled goes to
# their loop, and where that has ended an error goes into the log of another: of 1,000 calls it said all within 50 ms.
_LAST_EVENTS_S: Final = 0.1
# So long a client that is closed waits for what its cancelled polls bring, to give it back.
_GIVE_BACK_S: Final = 2.0

T = TypeVar("T")
Metadata = tuple[tuple[str, str], ...]


class AsyncChannelIO:
    """Runs plans on one channel, in the event loop that made it."""

    def __init__(
        self, channel: grpc.aio.Channel, where: str, seconds: float, handshake: Handshake, metadata: Metadata = ()
    ) -> None:
        """``seconds`` is how long a call is tried; ``metadata`` goes with each."""
        self._channel = channel
        self._where = where
        self._seconds = seconds
        self._metadata = metadata
        self._handshake = handshake
        self._gate = Gate(where)
        self._seldom = Seldom()
        self._calls = {
            method.path: channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
            for method in METHODS.values()
            if not (method.asks_many or method.answers_many)
        }
        self._polls = Polls(channel, metadata)
        self._loop = asyncio.get_running_loop()
        self._closing = asyncio.Event()
        # Calls that were cancelled, or are under way.
        self._unended = 0

    @property
    def is_ours(self) -> bool:
        """Whether this process opened it, and was not forked from the one that did."""
        return self._gate.is_ours

    async def run(self, plan: Plan[T]) -> T:
        """Carry a plan out, step by step. Raises TickwheelError in another event loop than the client's."""
        if asyncio.get_running_loop() is not self._loop:
            self._gate.check()
            raise another_loop(self._where)
        answer: Any = None
        error: BaseException | None = None
        while True:
            try:
                step = plan.send(answer) if error is None else plan.throw(error)
            except StopIteration as done:
                result: T = done.value
                return result
            answer = error = None
            try:
                if not isinstance(step, Ask):
                    raise of_the_server_itself(self._where)
                answer = await self._ask(step)
            except BaseException as raised:
                error = raised

    async def _ask(self, step: Ask) -> Any:
        calling = Calling(step, self._where, self._seconds, self._seldom, self._handshake)
        self._gate.check()
        while True:
            self._unended += 1
            try:
                answer = None
                if self._polls.takes(step):
                    answer = await self._polls.ask(step.request, calling.attempt_s())
                if answer is None:
                    answer = await self._calls[calling.path](
                        step.request, timeout=calling.attempt_s(), metadata=self._metadata + tracing.carried()
                    )
                self._unended -= 1
                calling.answered()
                return answer
            except grpc.aio.AioRpcError as failed:
                self._unended -= 1
                self._gate.check(sent=True)
                if calling.is_to_ask(failed) and (for_good := await in_thread(self._handshake.ask)):
                    raise for_good from None
                pause = calling.pause(failed)
            except grpc.aio.UsageError:
                # Closed before the polls of this turn were sent.
                self._unended -= 1
                self._gate.check()
                raise
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and not task.cancelling():
                    # Of the call, by the channel that is closed: not of the task that made it.
                    self._gate.check(sent=True)
                raise
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._closing.wait()
            self._gate.check(sent=True)

    async def close(self) -> None:
        """Close the channel, and end every call."""
        self._gate.close()
        if not self._gate.is_ours or self._loop.is_closed():
            return
        self._closing.set()
        try:
            await self._polls.close(_GIVE_BACK_S)
        finally:
            await self._channel.close()
        if self._unended or self._polls.are_under_way:
            await asyncio.sleep(_LAST_EVENTS_S)
