"""The clients of an app. The first call opens a client; the app closes it.

In a worker, the tasks share these clients with the worker, which needs them to settle the messages. So a worker keeps
them open, and closes them at its end.
"""

import asyncio
import inspect
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tickwheel import aio
from tickwheel.client.settings import WhereOptions
from tickwheel.model import validation
from tickwheel.tasks.client_group import ClientGroup


class AppClients:
    """The group of clients with the present options of the app, and the group that a worker keeps open."""

    def __init__(self, options: dict[str, Any], queue_config: Callable[[str], Mapping[str, Any]]) -> None:
        """``queue_config`` returns the configuration of a queue of the app by its name."""
        check_client_options(options)
        self._queue_config = queue_config
        self._lock = threading.Lock()
        self.current = ClientGroup(options, queue_config)
        # What `keep_open` keeps: a group, and the function that returns the event loop. A forked process keeps nothing.
        self._kept: ClientGroup | None = None
        self._kept_loop: Callable[[], asyncio.AbstractEventLoop | None] = lambda: None
        self._pid = os.getpid()

    def move(self, options: WhereOptions) -> None:
        """Close the client for threads, unless it is kept open, and drop those of event loops. Later clients use the
        changed options.
        """
        # ``url`` and ``data_dir`` exclude each other: a new value of one removes the other.
        cleared = {"url": None, "data_dir": None} if options.keys() & {"url", "data_dir"} else {}
        with self._lock:
            left, kept = self.current, self._kept
            changed = {**left.options, **cleared, **options}
            check_client_options(changed)
            # An app that returns to the options of its worker shares the clients of the worker again.
            returns = kept is not None and kept.options == changed
            self.current = kept if kept is not None and returns else ClientGroup(changed, self._queue_config)
        if not self._keeps(left):
            left.close()

    def forget_queue(self, name: str) -> None:
        """Make the next call create or update the queue again."""
        for group in filter(None, (self.current, self._kept)):
            group.forget_queue(name)

    @contextmanager
    def keep_open(self, loop: Callable[[], asyncio.AbstractEventLoop | None]) -> Iterator[ClientGroup]:
        """Yield the present group, with an open client for threads. Keep this client and the client of an event loop
        open until the ``with`` block ends.

        ``loop`` returns the event loop, which runs in another thread, or None if the loop does not run yet. In the
        block, `move` does not close these two clients. `close` and `aclose` close neither them nor the clients of a
        group to which the app has moved, because tasks in other threads share these. The end of the block closes all.

        Once the client is open, no client of the group creates the namespace again.
        """
        outer = self._kept, self._kept_loop, self._pid
        kept = self.current
        kept.client()
        could_create, kept.must_exist = not kept.must_exist, True
        self._kept, self._kept_loop, self._pid = kept, loop, os.getpid()
        try:
            yield kept
        finally:
            self._kept, self._kept_loop, self._pid = outer
            kept.must_exist = not could_create
            if (running := loop()) is not None:
                for group in (kept, self.current):
                    group.close_in_loop(running)
            self.close()
            kept.close()

    def close(self) -> None:
        """Close the client for threads, unless a worker keeps clients open. The next call opens another one."""
        if not self._keeps(self._kept):
            self.current.close()

    async def aclose(self) -> None:
        """Close the client of the running event loop, and the client for threads, unless they are kept open."""
        if asyncio.get_running_loop() is not self._kept_loop():
            await self.current.close_async()
        await asyncio.to_thread(self.close)

    def _keeps(self, group: ClientGroup | None) -> bool:
        return group is not None and group is self._kept and self._pid == os.getpid()


def check_client_options(options: Mapping[str, Any]) -> None:
    """Raise InvalidArgument if a client would reject the options. Opens nothing."""
    validation.reject_unknown("a client", options, inspect.signature(aio.Tickwheel).parameters)
    aio.Tickwheel(**options)
