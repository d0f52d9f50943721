"""Dequeue calls that do not wait, made at once by the tasks of one event loop: they go to the service in one call.

So a host whose idle workers ask again and again costs the service a fraction of what their single calls would.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio

from tickwheel import limits, tracing
from tickwheel.plan import RpcCall
from tickwheel.rpc.methods import METHODS
from tickwheel.v1 import message_service_pb2 as calls

_Poll = tuple[calls.DequeueRequest, "asyncio.Future[calls.DequeueResponse | None]"]


class DequeueBatcher:
    """Of one channel and its event loop."""

    def __init__(self, channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...]) -> None:
        """``metadata`` goes with each call."""
        batch, release = METHODS["DequeueBatch"], METHODS["Release"]
        self._batch: Callable[..., Any] = channel.unary_stream(
            batch.path, batch.request.SerializeToString, batch.response.FromString
        )
        self._release: Callable[..., Any] = channel.unary_unary(
            release.path, release.request.SerializeToString, release.response.FromString
        )
        self._metadata = metadata
        self._pending: list[_Poll] = []
        self._waiting: set[asyncio.Future[calls.DequeueResponse | None]] = set()
        self._in_flight: set[asyncio.Task[None]] = set()
        # An older service is asked one by one.
        self._is_supported = True

    def can_batch(self, step: RpcCall) -> bool:
        """Whether the call may be one of many. Where there are spans, each call has its own."""
        return (
            step.method == "Dequeue"
            and step.until is None
            and step.request.first_attempt
            and self._is_supported
            and not tracing.is_on()
        )

    async def submit(self, request: calls.DequeueRequest, seconds: float) -> calls.DequeueResponse | None:
        """Its answer; None where it is to be sent by itself. Raises as a call of the channel does.

        A request that was sent in vain is no first attempt any more, and says so.
        """
        loop = asyncio.get_running_loop()
        if not self._pending:
            # After the other tasks that are ready now.
            loop.call_soon(self._flush, seconds)
        answer: asyncio.Future[calls.DequeueResponse | None] = loop.create_future()
        self._pending.append((request, answer))
        self._waiting.add(answer)
        try:
            return await answer
        except asyncio.CancelledError:
            if not answer.cancelled() and answer.exception() is None and (response := answer.result()) is not None:
                # Cancelled between the answer and its turn.
                self._release_unclaimed(request, response, seconds)
            raise
        finally:
            self._waiting.discard(answer)

    @property
    def has_calls_in_flight(self) -> bool:
        """Whether a call has not ended."""
        return bool(self._in_flight)

    async def close(self, seconds: float) -> None:
        """Cancel who waits, and wait, so long at most, for the end of their calls: what they bring is given back."""
        for answer in self._waiting:
            answer.cancel()
        until = asyncio.get_running_loop().time() + seconds
        while self._in_flight and (remaining_s := until - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(self._in_flight, timeout=remaining_s, return_when=asyncio.FIRST_COMPLETED)

    def _flush(self, seconds: float) -> None:
        pending = [(request, answer) for request, answer in self._pending if not answer.done()]
        self._pending = []
        for polls in _chunks(pending):
            if len(polls) == 1:
                polls[0][1].set_result(None)
            else:
                self._start(self._send_batch(polls, seconds))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)

    async def _send_batch(self, polls: list[_Poll], seconds: float) -> None:
        batch_request = calls.DequeueBatchRequest(requests=[request for request, _ in polls])
        for request, _ in polls:
            request.first_attempt = False
        remaining = dict(enumerate(polls))
        try:
            async for response in self._batch(batch_request, timeout=seconds, metadata=self._metadata):
                for item in response.answers:
                    self._deliver(*remaining.pop(item.place), item.response, seconds)
        except Exception as failed:
            # Whatever it is, those who wait hear of it.
            code = failed.code() if isinstance(failed, grpc.aio.AioRpcError) else None
            if code is grpc.StatusCode.UNIMPLEMENTED:
                self._is_supported = False
            # All others have been answered: those whom it is about ask by themselves, and are told.
            elif code is not grpc.StatusCode.PERMISSION_DENIED:
                for _, answer in remaining.values():
                    if not answer.done():
                        answer.set_exception(failed)
        except asyncio.CancelledError:
            # The channel is closed, or the event loop ends.
            for _, answer in remaining.values():
                answer.cancel()
            raise
        for _, answer in remaining.values():
            if not answer.done():
                answer.set_result(None)

    def _deliver(
        self,
        request: calls.DequeueRequest,
        answer: "asyncio.Future[calls.DequeueResponse | None]",
        response: calls.DequeueResponse,
        seconds: float,
    ) -> None:
        if answer.done():
            self._release_unclaimed(request, response, seconds)
        else:
            answer.set_result(response)

    def _release_unclaimed(
        self, request: calls.DequeueRequest, response: calls.DequeueResponse, seconds: float
    ) -> None:
        """Who asked was cancelled meanwhile."""
        if response.deliveries:
            self._start(self._release_messages(request, response, seconds))

    async def _release_messages(
        self, request: calls.DequeueRequest, response: calls.DequeueResponse, seconds: float
    ) -> None:
        leases = [delivery.lease for delivery in response.deliveries]
        release_request = calls.ReleaseRequest(namespace=request.namespace, queue=request.queue, leases=leases)
        # Else they come back when their leases end.
        with suppress(grpc.aio.AioRpcError, grpc.aio.UsageError):
            await self._release(release_request, timeout=seconds, metadata=self._metadata)


def _chunks(polls: list[_Poll]) -> Iterator[list[_Poll]]:
    """As many as may go in one call."""
    chunk: list[_Poll] = []
    wanted = 0
    for poll in polls:
        wanted += poll[0].limit
        if chunk and (len(chunk) == limits.DEQUEUE_REQUESTS or wanted > limits.DEQUEUE_MESSAGES):
            yield chunk
            chunk, wanted = [], poll[0].limit
        chunk.append(poll)
    if chunk:
        yield chunk
