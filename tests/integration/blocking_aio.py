"""The asyncio client with a blocking interface, so that one specification tests both clients.

Every call runs as a task of one event loop, in a thread of its own. Returned queues and messages work the same way.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from datetime import datetime
from inspect import isasyncgen, iscoroutine
from typing import Any, cast

from tickwheel import Tickwheel, aio
from tickwheel.testing import PrivateServer, VirtualClock
from tickwheel.testing.virtual_clock import FRAGMENT

_ANSWER_S = 60.0
_END = object()


class LoopThread:
    """An event loop that runs in a thread until it is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run the coroutine as a task of the loop, and return its result or raise its error."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_ANSWER_S)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Blocking:
    """A `Tickwheel`, `Queue` or `Message` of the asyncio client whose methods block until they are done."""

    def __init__(self, loop: LoopThread, awaited: Any) -> None:
        self._loop = loop
        self._awaited = awaited

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._awaited, name)
        if not callable(attribute) or isinstance(attribute, type):
            return attribute

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._blocking(attribute(*map(_await, args), **kwargs))

        return call

    def __eq__(self, other: object) -> bool:
        return self._awaited is _await(other)

    def __hash__(self) -> int:
        return hash(self._awaited)

    def __repr__(self) -> str:
        return repr(self._awaited)

    def _blocking(self, value: Any) -> Any:
        if iscoroutine(value):
            value = self._loop.run(value)
        if isasyncgen(value):
            return self._each(value)
        if isinstance(value, list):
            return [self._blocking(item) for item in value]
        if isinstance(value, aio.Tickwheel | aio.Queue | aio.Message):
            return Blocking(self._loop, value)
        return value

    def _each(self, iterator: Any) -> Iterator[Any]:
        async def following() -> Any:
            return await anext(iterator, _END)

        while (item := self._loop.run(following())) is not _END:
            yield item


def _await(argument: Any) -> Any:
    if isinstance(argument, list):
        return [_await(item) for item in argument]
    return argument._awaited if isinstance(argument, Blocking) else argument


@contextmanager
def blocking_aio(url: str, **settings: Any) -> Iterator[Blocking]:
    """Return an open asyncio client with a blocking interface."""
    loop = LoopThread()
    try:
        tickwheel = Blocking(loop, aio.Tickwheel(url, **settings))
        tickwheel.open()
        try:
            yield tickwheel
        finally:
            tickwheel.close()
    finally:
        loop.close()


@contextmanager
def aio_sandbox(
    server: PrivateServer, *, now: datetime | None = None, **settings: Any
) -> Iterator[tuple[Tickwheel, VirtualClock]]:
    """Like `tickwheel.testing.sandbox`, with the asyncio client and its settings."""
    namespace = f"test-{os.urandom(6).hex()}"
    with blocking_aio(server.url, namespace=namespace, clock=FRAGMENT, **settings) as tickwheel:
        clock = VirtualClock(server.url, namespace, now)
        try:
            yield cast(Tickwheel, tickwheel), clock
        finally:
            clock.close()
            server.clear(namespace)
