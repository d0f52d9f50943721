"""Enqueue of single messages: those of concurrent calls for one queue go to the script together."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from tickwheel.model.message import EnqueueResult, NewMessage
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.enqueue import EnqueueRound, RefusedMessage, send, to_error
from tickwheel.operations.message_packer import PackedMessage, Packer
from tickwheel.operations.queues import ensure
from tickwheel.service.micro_batcher import MicroBatcher
from tickwheel.telemetry.histogram import Histogram

# Of the event loop, from what the connection has read to the call that waited.
_WAKE_UP_LOOP_TURNS: Final = 2


class EnqueueBatcher:
    """Of one namespace."""

    def __init__(
        self,
        context: NamespaceContext,
        run: Callable[[Any], Awaitable[Any]],
        group_sizes: Histogram,
        has_waiters: Callable[[str], bool],
    ) -> None:
        """``groups`` counts how many messages went together; ``waited_for`` says whether a call waits for a queue's."""
        self._context = context
        self._run = run
        self._group_sizes = group_sizes
        self._has_waiters = has_waiters
        self._buffers: dict[str, _QueueBuffer] = {}

    async def enqueue(self, queue: str, new: NewMessage) -> EnqueueResult:
        """Enqueue one message. Raises as `Queue.enqueue` does."""
        result = await self.try_enqueue(queue, new)
        if isinstance(result, RefusedMessage):
            raise to_error(queue, result)
        return result

    async def try_enqueue(self, queue: str, new: NewMessage) -> EnqueueResult | RefusedMessage:
        """The same; that only a server could refuse it is no error here."""
        context = self._context
        config = context.configs.get(queue) or await self._run(ensure(context, queue))
        buffer = self._buffers.get(queue)
        if buffer is None or buffer.uid != config.uid:
            # What waits in the line of before is sent by that one.
            buffer = self._buffers[queue] = _QueueBuffer(context, queue, config.uid, self._run, self._group_sizes)
        result = await buffer.batcher.submit(buffer.pack(config, new))
        if self._has_waiters(queue):
            # The wake-up that was published with it is here, too: who waits asks before we tell that it is there.
            for _ in range(_WAKE_UP_LOOP_TURNS):
                await asyncio.sleep(0)
        return result


class _QueueBuffer:
    """The messages of one queue, of one configuration, that wait to be sent."""

    def __init__(
        self,
        context: NamespaceContext,
        queue: str,
        uid: bytes,
        run: Callable[[Any], Awaitable[Any]],
        group_sizes: Histogram,
    ) -> None:
        self._context = context
        self._queue = queue
        self.uid = uid
        self._run = run
        self._group_sizes = group_sizes
        self._packer: Packer | None = None
        self._config: QueueConfig | None = None
        self.batcher: MicroBatcher[PackedMessage, EnqueueResult | RefusedMessage] = MicroBatcher(self._send, _max_batch)

    def pack(self, config: QueueConfig, new: NewMessage) -> PackedMessage:
        """The message, ready to send. Raises InvalidArgument for what is wrong with it."""
        if self._packer is None or self._config is not config:
            self._packer, self._config = Packer(self._context, self._queue, config), config
        return self._packer.pack(new)

    async def _send(self, group: list[PackedMessage]) -> Sequence[EnqueueResult | RefusedMessage]:
        self._group_sizes.add(len(group))
        results: Sequence[EnqueueResult | RefusedMessage] = await self._run(
            send(self._context, self._queue, group, self.uid)
        )
        return results


def _max_batch(waiting: Sequence[PackedMessage]) -> int:
    part = EnqueueRound()
    return next((n for n, packed in enumerate(waiting) if not part.add(packed)), len(waiting))
