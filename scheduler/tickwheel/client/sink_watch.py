"""Notices that a queue no longer has the sink because of which a program does not drive.

Changes of queues are published, with the name of the queue. So only the row of this queue is read, and only after a
change.
"""

import logging
from collections.abc import Callable
from contextlib import closing, suppress
from math import inf
from random import SystemRandom
from threading import Thread
from typing import Final

from tickwheel.client.settings import ClientSettings
from tickwheel.errors import TickwheelError
from tickwheel.model.served_topics import ServedTopics
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.driving.obstacles import find_sink
from tickwheel.plan import BROKEN_ANSWER
from tickwheel.redis.blocking_executor import RedisExecutor
from tickwheel.redis.channel_listener import ChannelListener
from tickwheel.redis.pools import ConnectionPools
from tickwheel.redis.replies import CONNECTION_ERRORS, permanent_error
from tickwheel.redis.topology import SINGLE
from tickwheel.runtime.backoff import Backoff
from tickwheel.runtime.time import monotonic_ms
from tickwheel.runtime.wake_pipe import WakePipe
from tickwheel.storage.keys import queue_of_config_key, shard_key

# After a change of the queue, each program waits for a random part of this time, so that not all read at once.
_JITTER_S: Final = 1.0
# The last step of a deletion follows its notification. So the queue is read again after this time.
_AGAIN_S: Final = 5.0
# The longest wait for one notification. Later notifications are not missed.
_WAIT_MS: Final = 60_000.0
# The first and the longest pause before another connection, after an error.
_BACKOFF_S: Final = (1.0, 30.0)
# The timeout of each call. It delays the end of the program.
_CALL_S: Final = 2.0

_random = SystemRandom().random
_log = logging.getLogger("tickwheel.driving")


class SinkWatch:
    """Calls ``on_end`` once, from a thread of its own, when the queue has a sink that the program serves, or none.

    The program checks its obstacle from time to time, too. So the watch gives up if its user may not subscribe.
    """

    def __init__(
        self, settings: ClientSettings, queue: str, topics: ServedTopics | None, on_end: Callable[[], None]
    ) -> None:
        """``settings`` name a server of Redis by its URL. ``topics`` are those of `find_sink`."""
        self._settings = settings
        self._queue = queue
        self._topics = topics
        self._on_end = on_end
        self._context = NamespaceContext(settings.namespace)
        self._wake = WakePipe()
        self._is_closing = self._has_changed = False
        self._thread = Thread(target=self._run, name="tickwheel-sink-watch", daemon=True)

    def start(self) -> None:
        """Start the thread, unless the host has no resources for another one."""
        with suppress(RuntimeError):
            self._thread.start()

    def close(self) -> None:
        """End the thread, and wait until it has ended."""
        self._is_closing = True
        self._wake.set()
        if self._thread.ident:
            self._thread.join()
        self._wake.close()

    def _run(self) -> None:
        backoff = Backoff(*_BACKOFF_S)
        while not self._is_closing:
            try:
                self._watch(backoff)
                return
            except (*CONNECTION_ERRORS, *BROKEN_ANSWER, TickwheelError) as error:
                _log.debug("cannot notice changes of the sink of queue %s: %s", self._queue, error)
                if permanent_error(error) is not None:
                    return
            self._wake.wait(1_000 * backoff.next())

    def _watch(self, backoff: Backoff) -> None:
        """Watch the queue over one connection, until its sink is no obstacle or `close` is called."""
        settings = self._settings
        assert settings.url is not None
        servers = ConnectionPools(settings.url, _CALL_S)
        with (
            closing(RedisExecutor(servers, settings.display_url, _CALL_S)) as io,
            closing(
                ChannelListener(
                    servers.open_subscriber(SINGLE), self._wake.fileno(), 1_000 * _CALL_S, self._on_notification
                )
            ) as listener,
        ):
            # Subscribes before the first read, so that no change is missed.
            listener.set_channels([shard_key(settings.namespace, 0, "adopted")])
            self._has_changed = False
            while not self._is_closing:
                if io.run(find_sink(self._context, [self._queue], topics=self._topics)) is None:
                    self._on_end()
                    return
                backoff.reset()
                self._await_change(listener, _AGAIN_S if self._has_changed else inf)
                if self._has_changed:
                    self._wake.wait(1_000 * _JITTER_S * _random())

    def _await_change(self, listener: ChannelListener, seconds: float) -> None:
        """Wait until the queue changes, for at most ``seconds``."""
        self._has_changed, ends_ms = False, monotonic_ms() + 1_000 * seconds
        while not (self._is_closing or self._has_changed) and (now := monotonic_ms()) < ends_ms:
            listener.poll(min(ends_ms, now + _WAIT_MS))

    def _on_notification(self, text: bytes) -> None:
        # Notifications of earlier versions do not name the queue.
        if queue_of_config_key(self._settings.namespace, text) in (self._queue, None):
            self._has_changed = True
