"""Combines the polls of one event loop into one RPC. A poll is a dequeue call that does not wait.

Polls that tasks start in the same turn of the event loop go to the service in one DequeueBatch call. If a host has many
idle workers, the service needs far less processor time for these calls than for single polls.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio

from tickwheel import limits, tracing
from tickwheel.plan import BROKEN_ANSWER, RpcCall
from tickwheel.rpc.methods import METHODS
from tickwheel.v1 import message_service_pb2 as calls

_Poll = tuple[calls.DequeueRequest, "asyncio.Future[calls.DequeueResponse | None]"]


class DequeueBatcher:
    """The polls of one channel and its event loop."""

    def __init__(self, channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...]) -> None:
        """Every call carries ``metadata``."""
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
        # False after an older service has rejected DequeueBatch. Polls are then sent one by one.
        self._is_supported = True

    def can_batch(self, step: RpcCall) -> bool:
        """Return whether the call may be part of a batch. With tracing on, each call is sent alone, in its own span."""
        return (
            step.method == "Dequeue"
            and step.until is None
            and step.request.first_attempt
            and self._is_supported
            and not tracing.is_on()
        )

    async def submit(self, request: calls.DequeueRequest, seconds: float) -> calls.DequeueResponse | None:
        """Send a poll with the polls of other tasks. Return its answer, or None if the caller must send the poll alone.

        Raises the errors of the RPC. Clears ``first_attempt`` of a request that was sent in a batch, so
        that the service treats a later copy as a retry.
        """
        loop = asyncio.get_running_loop()
        if not self._pending:
            # Flush after all tasks that are ready in this turn have submitted their polls.
            loop.call_soon(self._flush, seconds)
        answer: asyncio.Future[calls.DequeueResponse | None] = loop.create_future()
        self._pending.append((request, answer))
        self._waiting.add(answer)
        try:
            return await answer
        except asyncio.CancelledError:
            if not answer.cancelled() and answer.exception() is None and (response := answer.result()) is not None:
                # The task was cancelled after the answer arrived, and before the task ran again.
                self._release_unclaimed(request, response, seconds)
            raise
        finally:
            self._waiting.discard(answer)

    @property
    def has_calls_in_flight(self) -> bool:
        """Whether a batch, or a release of unclaimed messages, has not ended."""
        return bool(self._in_flight)

    async def close(self, seconds: float) -> None:
        """Cancel all polls, and wait up to ``seconds`` for their answers, to release the messages in them."""
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
        except BROKEN_ANSWER:
            # The response cannot be parsed, or answers a request that is not in the batch. The remaining polls are sent
            # alone, and each of them receives its own answer or error.
            pass
        except Exception as failed:
            # Every kind of failure must reach the waiting polls.
            code = failed.code() if isinstance(failed, grpc.aio.AioRpcError) else None
            if code is grpc.StatusCode.UNIMPLEMENTED:
                self._is_supported = False
            # A token may lack the permission for one of the queues. The service has answered the polls of all other
            # queues. The remaining polls are sent alone, and each of them receives its own error.
            elif code is not grpc.StatusCode.PERMISSION_DENIED:
                for _, answer in remaining.values():
                    if not answer.done():
                        answer.set_exception(failed)
        except asyncio.CancelledError:
            # The channel was closed, or the event loop ends.
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
        """Release the messages of an answer whose task was cancelled."""
        if response.deliveries:
            self._start(self._release_messages(request, response, seconds))

    async def _release_messages(
        self, request: calls.DequeueRequest, response: calls.DequeueResponse, seconds: float
    ) -> None:
        leases = [delivery.lease for delivery in response.deliveries]
        release_request = calls.ReleaseRequest(namespace=request.namespace, queue=request.queue, leases=leases)
        # If the release fails, the messages are delivered again after their leases end.
        with suppress(grpc.aio.AioRpcError, grpc.aio.UsageError):
            await self._release(release_request, timeout=seconds, metadata=self._metadata)


def _chunks(polls: list[_Poll]) -> Iterator[list[_Poll]]:
    """Cut polls into chunks that fit into one DequeueBatch call."""
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
