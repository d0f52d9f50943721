"""Coalesces enqueues of single messages: one script call enqueues the messages of concurrent calls for a queue."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from tickwheel.errors import InvalidArgument, OutboxFull, QueueBlocked
from tickwheel.model.message import EnqueueResult, NewMessage
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.enqueue import EnqueueRound, RefusedMessage, first_round_check, send, to_error
from tickwheel.operations.message_packer import PackedMessage, Packer
from tickwheel.operations.queues import ensure
from tickwheel.service.authorization import creation_limit
from tickwheel.service.batching.micro_batcher import MicroBatcher, drop_idle
from tickwheel.service.call_limits import PLACE
from tickwheel.telemetry.histogram import Histogram

Result = EnqueueResult | RefusedMessage
# The number of turns of the event loop from reading a wake-up to resuming the call that waits for it.
_WAKE_UP_LOOP_TURNS: Final = 2
# Each queue has a buffer, and each of its shards has a batcher. If there are as many as this, the idle ones are dropped
# before another one is added.
_MAX_BUFFERS: Final = 1_000
_MAX_BATCHERS: Final = 64


class EnqueueBatcher:
    """Coalesces the enqueues of one namespace."""

    def __init__(
        self,
        context: NamespaceContext,
        run: Callable[[Any], Awaitable[Any]],
        group_sizes: Histogram,
        has_waiters: Callable[[str], bool],
        run_in_turns: Callable[[Any], Awaitable[Any]] | None = None,
    ) -> None:
        """``group_sizes`` counts the messages of each script call. ``has_waiters`` returns whether a call waits for
        messages of a queue. ``run_in_turns`` runs the plans that create queues; by default, ``run`` does.
        """
        self._context = context
        self._run = run
        self._group_sizes = group_sizes
        self._has_waiters = has_waiters
        self._run_in_turns = run_in_turns or run
        # By caller, queue and uid.
        self._creations: dict[tuple[str, str, bytes], asyncio.Future[QueueConfig]] = {}
        self._buffers: dict[str, _QueueBuffer] = {}

    async def enqueue(self, queue: str, new: NewMessage) -> EnqueueResult:
        """Enqueue one message. Raises as `Queue.enqueue` does."""
        result = await self.try_enqueue(queue, new)
        if isinstance(result, RefusedMessage):
            raise to_error(queue, result)
        return result

    async def try_enqueue(self, queue: str, new: NewMessage, uid: bytes = b"") -> Result:
        """Enqueue one message as `enqueue` does, but return a rejection by the server instead of raising its error.

        ``uid``: see `ensure`.
        """
        context = self._context
        config = context.configs.get(queue)
        if config is None or (uid and config.uid != uid):
            config = await self._ensure(queue, uid, new)
        buffer = self._buffers.get(queue)
        if buffer is None or buffer.packer.uid != config.uid:
            # The old buffer still sends the messages that wait in it.
            drop_idle(self._buffers, _MAX_BUFFERS)
            buffer = self._buffers[queue] = _QueueBuffer(context, queue, config, self._run, self._group_sizes)
        result = await buffer.submit(buffer.pack(config, new))
        if self._has_waiters(queue):
            # The reply has arrived, and with it the wake-up that this enqueue published. Let the waiting calls send
            # their dequeues before this call returns.
            for _ in range(_WAKE_UP_LOOP_TURNS):
                await asyncio.sleep(0)
        return result

    async def _ensure(self, queue: str, uid: bytes, new: NewMessage) -> QueueConfig:
        """Return the configuration of the queue, which is possibly new. Concurrent calls of a caller create it once, or
        get the same error: to send a configuration to 256 shards takes the event loop some milliseconds.

        Raises InvalidArgument if the queue is missing and ``new`` is invalid in a new queue.
        """
        try:
            Packer(self._context, queue, QueueConfig()).pack(new)
        except InvalidArgument:
            # The message may be valid if the queue exists. Its error must not become the answer of other calls.
            check = first_round_check(self._context, queue, [new])
            existing: QueueConfig = await self._run_in_turns(
                ensure(self._context, queue, creation_limit(), uid, check=check)
            )
            return existing
        key = PLACE.get()[0], queue, uid
        creation = self._creations.get(key)
        if creation is None:
            plan = ensure(self._context, queue, creation_limit(), uid)
            creation = self._creations[key] = asyncio.ensure_future(self._run_in_turns(plan))
            creation.add_done_callback(lambda done: self._end_creation(key, done))
        # The creation goes on if this call is cancelled.
        return await asyncio.shield(creation)

    def _end_creation(self, key: tuple[str, str, bytes], creation: "asyncio.Future[QueueConfig]") -> None:
        del self._creations[key]
        if not creation.cancelled():
            # Otherwise, asyncio logs an error that no call has got, because all were cancelled.
            creation.exception()


class _QueueBuffer:
    """The packed messages that wait to be sent to one queue. A recreated queue has another uid and another buffer."""

    def __init__(
        self,
        context: NamespaceContext,
        queue: str,
        config: QueueConfig,
        run: Callable[[Any], Awaitable[Any]],
        group_sizes: Histogram,
    ) -> None:
        self._context = context
        self._queue = queue
        self.packer = Packer(context, queue, config)
        self._run = run
        self._group_sizes = group_sizes
        # By shard: a shard that fails, or does not answer, must not affect the messages for other shards.
        self._batchers: dict[int, MicroBatcher[PackedMessage, Result | None]] = {}

    @property
    def is_busy(self) -> bool:
        """Whether messages are in flight or wait to be sent."""
        return any(batcher.is_busy for batcher in self._batchers.values())

    def pack(self, config: QueueConfig, new: NewMessage) -> PackedMessage:
        """Return the message, ready to send. Raises InvalidArgument if the message is invalid."""
        if self.packer.config is not config:
            self.packer = Packer(self._context, self._queue, config)
        return self.packer.pack(new)

    async def submit(self, packed: PackedMessage) -> Result:
        """Send the message with those of concurrent calls for the same shard. Raises as `Queue.enqueue` does."""
        batcher = self._batchers.get(packed.shard)
        if batcher is None:
            drop_idle(self._batchers, _MAX_BATCHERS)
            batcher = self._batchers[packed.shard] = MicroBatcher(self._send, _max_batch)
        result = await batcher.submit(packed, PLACE.get()[0])
        if result is None:
            # A message that exists already is answered as usual, but a group with another, new message was refused.
            [result] = await self._send([packed])
        assert result is not None
        return result

    async def _send(self, group: list[PackedMessage]) -> Sequence[Result | None]:
        """Return the results of a group; None for each message if the server has refused the whole group."""
        self._group_sizes.add(len(group))
        try:
            results: Sequence[Result] = await self._run(send(self._context, self._queue, group, self.packer.uid))
        except (QueueBlocked, OutboxFull):
            if len(group) == 1:
                raise
            return [None] * len(group)
        return results


def _max_batch(waiting: Sequence[PackedMessage]) -> int:
    part = EnqueueRound()
    return next((n for n, packed in enumerate(waiting) if not part.add(packed)), len(waiting))
