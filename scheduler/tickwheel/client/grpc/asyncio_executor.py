"""Plans of calls of the service carried out on a channel of an event loop."""

import asyncio
from contextlib import suppress
from typing import Any, Final, TypeVar

import grpc
import grpc.aio

from tickwheel import tracing
from tickwheel.client.grpc.call_retry import CallRetry, not_supported_error
from tickwheel.client.grpc.dequeue_batcher import DequeueBatcher
from tickwheel.client.grpc.handshake_probe import HandshakeProbe
from tickwheel.plan import Plan, PlanRun, RpcCall
from tickwheel.rpc.methods import METHODS
from tickwheel.runtime.event_loop import run_in_thread, wrong_loop_error
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.runtime.process_guard import ProcessGuard

# A process has one poller of grpc for all its event loops. What it has yet to say of calls that were cancelled goes to
# their loop, and where that has ended an error goes into the log of another: of 1,000 calls it said all within 50 ms.
_LAST_EVENTS_S: Final = 0.1
# So long a client that is closed waits for what its cancelled polls bring, to give it back.
_RELEASE_TIMEOUT_S: Final = 2.0

T = TypeVar("T")
Metadata = tuple[tuple[str, str], ...]


class AsyncGrpcExecutor:
    """Runs plans on one channel, in the event loop that made it."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        display_url: str,
        seconds: float,
        handshake: HandshakeProbe,
        metadata: Metadata = (),
    ) -> None:
        """``seconds`` is how long a call is tried; ``metadata`` goes with each."""
        self._channel = channel
        self._display_url = display_url
        self._seconds = seconds
        self._metadata = metadata
        self._handshake = handshake
        self._process_guard = ProcessGuard(display_url)
        self._log_throttle = LogThrottle()
        self._calls = {
            method.path: channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
            for method in METHODS.values()
            if not (method.client_streaming or method.server_streaming)
        }
        self._dequeue_batcher = DequeueBatcher(channel, metadata)
        self._loop = asyncio.get_running_loop()
        self._closing = asyncio.Event()
        # Calls that were cancelled, or are under way.
        self._open_calls = 0

    @property
    def owned_by_this_process(self) -> bool:
        """Whether this process opened it, and was not forked from the one that did."""
        return self._process_guard.owned_by_this_process

    async def run(self, plan: Plan[T]) -> T:
        """Carry a plan out, step by step. Raises TickwheelError in another event loop than the client's."""
        if asyncio.get_running_loop() is not self._loop:
            self._process_guard.check()
            raise wrong_loop_error(self._display_url)
        plan_run = PlanRun(plan)
        while (step := plan_run.next_step()) is not None:
            try:
                if not isinstance(step, RpcCall):
                    raise not_supported_error(self._display_url)
                plan_run.answer = await self._call(step)
            except BaseException as raised:
                plan_run.error = raised
        return plan_run.result

    async def _call(self, step: RpcCall) -> Any:
        retry = CallRetry(step, self._display_url, self._seconds, self._log_throttle, self._handshake)
        self._process_guard.check()
        while True:
            self._open_calls += 1
            try:
                answer = None
                if self._dequeue_batcher.can_batch(step):
                    answer = await self._dequeue_batcher.submit(step.request, retry.attempt_s())
                if answer is None:
                    answer = await self._calls[retry.path](
                        step.request, timeout=retry.attempt_s(), metadata=self._metadata + tracing.carried()
                    )
                self._open_calls -= 1
                retry.record_success()
                return answer
            except grpc.aio.AioRpcError as failed:
                self._open_calls -= 1
                self._process_guard.check(sent=True)
                if retry.should_probe(failed) and (permanent_error := await run_in_thread(self._handshake.probe_tls)):
                    raise permanent_error from None
                pause = retry.backoff_or_raise(failed)
            except grpc.aio.UsageError:
                # Closed before the polls of this turn were sent.
                self._open_calls -= 1
                self._process_guard.check()
                raise
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and not task.cancelling():
                    # Of the call, by the channel that is closed: not of the task that made it.
                    self._process_guard.check(sent=True)
                raise
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._closing.wait()
            self._process_guard.check(sent=True)

    async def close(self) -> None:
        """Close the channel, and end every call."""
        self._process_guard.close()
        if not self._process_guard.owned_by_this_process or self._loop.is_closed():
            return
        self._closing.set()
        try:
            await self._dequeue_batcher.close(_RELEASE_TIMEOUT_S)
        finally:
            await self._channel.close()
        if self._open_calls or self._dequeue_batcher.has_calls_in_flight:
            await asyncio.sleep(_LAST_EVENTS_S)
