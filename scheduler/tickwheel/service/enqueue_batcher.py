"""Enqueue of single messages: those of concurrent calls for one queue go to the script together."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from tickwheel.model.message import EnqueueResult, NewMessage
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.context import Core
from tickwheel.operations.enqueue import Packed, Packer, Part, Refused, refused, send
from tickwheel.operations.queues import ensure
from tickwheel.service.micro_batcher import Grouping
from tickwheel.telemetry.histogram import Histogram

# Of the event loop, from what the connection has read to the call that waited.
_STEPS_OF_A_WAKE_UP: Final = 2


class Enqueuing:
    """Of one namespace."""

    def __init__(
        self, core: Core, run: Callable[[Any], Awaitable[Any]], groups: Histogram, waited_for: Callable[[str], bool]
    ) -> None:
        """``groups`` counts how many messages went together; ``waited_for`` says whether a call waits for a queue's."""
        self._core = core
        self._run = run
        self._groups = groups
        self._waited_for = waited_for
        self._lines: dict[str, _Line] = {}

    async def add(self, queue: str, new: NewMessage) -> EnqueueResult:
        """Enqueue one message. Raises as `Queue.enqueue` does."""
        result = await self.offer(queue, new)
        if isinstance(result, Refused):
            raise refused(queue, result)
        return result

    async def offer(self, queue: str, new: NewMessage) -> EnqueueResult | Refused:
        """The same; that only a server could refuse it is no error here."""
        core = self._core
        config = core.configs.get(queue) or await self._run(ensure(core, queue))
        line = self._lines.get(queue)
        if line is None or line.stamp != config.stamp:
            # What waits in the line of before is sent by that one.
            line = self._lines[queue] = _Line(core, queue, config.stamp, self._run, self._groups)
        result = await line.group.add(line.pack(config, new))
        if self._waited_for(queue):
            # The wake-up that was published with it is here, too: who waits asks before we tell that it is there.
            for _ in range(_STEPS_OF_A_WAKE_UP):
                await asyncio.sleep(0)
        return result


class _Line:
    """The messages of one queue, of one configuration, that wait to be sent."""

    def __init__(
        self, core: Core, queue: str, stamp: bytes, run: Callable[[Any], Awaitable[Any]], groups: Histogram
    ) -> None:
        self._core = core
        self._queue = queue
        self.stamp = stamp
        self._run = run
        self._groups = groups
        self._packer: Packer | None = None
        self._config: QueueConfig | None = None
        self.group: Grouping[Packed, EnqueueResult | Refused] = Grouping(self._send, _fitting)

    def pack(self, config: QueueConfig, new: NewMessage) -> Packed:
        """The message, ready to send. Raises InvalidArgument for what is wrong with it."""
        if self._packer is None or self._config is not config:
            self._packer, self._config = Packer(self._core, self._queue, config), config
        return self._packer.pack(new)

    async def _send(self, group: list[Packed]) -> Sequence[EnqueueResult | Refused]:
        self._groups.add(len(group))
        results: Sequence[EnqueueResult | Refused] = await self._run(send(self._core, self._queue, group, self.stamp))
        return results


def _fitting(waiting: Sequence[Packed]) -> int:
    part = Part()
    return next((n for n, packed in enumerate(waiting) if not part.add(packed)), len(waiting))
