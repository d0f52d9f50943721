"""Groups messages of concurrent calls: while one call of a script is under way, those that come wait for the next one.

So each call is as fast as the script where there are few, and where there are many they share its cost.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tickwheel.config import QueueConfig
from tickwheel.core import Core
from tickwheel.errors import TickwheelError
from tickwheel.message import EnqueueResult, NewMessage
from tickwheel.operations.enqueue import Packed, Packer, Part, Refused, check_refused, send
from tickwheel.operations.queues import ensure
from tickwheel.service.figures import Histogram


class Enqueuing:
    """Of one namespace."""

    def __init__(self, core: Core, run: Callable[[Any], Awaitable[Any]], groups: Histogram) -> None:
        """``groups`` counts how many messages went together."""
        self._core = core
        self._run = run
        self._groups = groups
        self._lines: dict[tuple[str, bytes], _Line] = {}

    async def add(self, queue: str, new: NewMessage) -> EnqueueResult:
        """Enqueue one message. Raises as `Queue.enqueue` does."""
        core = self._core
        config = core.configs.get(queue) or await self._run(ensure(core, queue))
        key = (queue, config.stamp)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(core, queue, config.stamp, self._run, self._groups)
        return check_refused(queue, [await line.add(line.pack(config, new))])[0]


class _Line:
    """The messages of one queue that wait to be sent."""

    def __init__(
        self, core: Core, queue: str, stamp: bytes, run: Callable[[Any], Awaitable[Any]], groups: Histogram
    ) -> None:
        self._core = core
        self._queue = queue
        self._stamp = stamp
        self._run = run
        self._groups = groups
        self._packer: Packer | None = None
        self._config: QueueConfig | None = None
        self._waiting: list[tuple[Packed, asyncio.Future[EnqueueResult | Refused]]] = []
        self._sending: asyncio.Task[None] | None = None

    def pack(self, config: QueueConfig, new: NewMessage) -> Packed:
        """The message, ready to send. Raises InvalidArgument for what is wrong with it."""
        if self._packer is None or self._config is not config:
            self._packer, self._config = Packer(self._core, self._queue, config), config
        return self._packer.pack(new)

    async def add(self, packed: Packed) -> EnqueueResult | Refused:
        """What became of it."""
        done: asyncio.Future[EnqueueResult | Refused] = asyncio.get_running_loop().create_future()
        self._waiting.append((packed, done))
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all())
        return await done

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                part = Part()
                count = next((n for n, (packed, _) in enumerate(self._waiting) if not part.add(packed)), None)
                self._groups.add(len(part.messages))
                sent, self._waiting = self._waiting[:count], self._waiting[count:] if count else []
                await self._send(sent)
        finally:
            self._sending = None

    async def _send(self, part: list[tuple[Packed, asyncio.Future[EnqueueResult | Refused]]]) -> None:
        try:
            plan = send(self._core, self._queue, [packed for packed, _ in part], self._stamp)
            results = await self._run(plan)
        except (TickwheelError, asyncio.CancelledError) as error:
            for _, done in part:
                if not done.done():
                    done.set_exception(error)
            return
        for (_, done), result in zip(part, results, strict=True):
            if not done.done():
                done.set_result(result)
