"""Stops an event process of last resort when something speaks against it: a queue gets a sink, for example.

Changes of queues are published, with the name of the queue, so only the rows of these queues are read. All other
obstacles are found by a check from time to time.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import closing
from math import inf
from random import SystemRandom
from threading import Thread
from typing import Final

from redis.exceptions import RedisError

from tickwheel.driver.shard_connection import make_connection
from tickwheel.errors import TickwheelError
from tickwheel.operations.driving.obstacles import Obstacle
from tickwheel.redis.channel_listener import ChannelListener
from tickwheel.redis.driver_executor import DriverExecutor
from tickwheel.runtime.backoff import Backoff
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.runtime.time import monotonic_ms
from tickwheel.runtime.wake_pipe import WakePipe
from tickwheel.storage.keys import queue_of_config_key, shard_key
from tickwheel.storage.script_errors import ScriptError

# Time between two checks of the namespace, for a process that drives shards and for one that stands by.
CHECK_MS: Final = 60_000.0
STANDBY_CHECK_MS: Final = 300_000.0
# After a change of a queue, each process waits for a random part of this time. So the processes of a namespace do not
# all read at once, and one read serves many changes. A process that stands by serves no queue. If it begins to drive
# meanwhile, the shorter time counts, from the change on.
JITTER_MS: Final = 1_000.0
STANDBY_JITTER_MS: Final = 30_000.0
# How often a process that waits notices that it has begun to drive.
_SLICE_MS: Final = 200.0
# If more queues have changed, all are read. Such a read can take long, so the reads after changes take at most a tenth
# of the time.
QUEUES_MAX: Final = 100
_PAUSE_FACTOR: Final = 10

_random = SystemRandom().random
_log = logging.getLogger("tickwheel.driving")


class QueueChanges:
    """The queues that have changed since the last read."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._names: set[str] = set()
        self._are_unknown = False

    def __bool__(self) -> bool:
        return bool(self._names) or self._are_unknown

    def on_payload(self, payload: bytes) -> None:
        """Take over a notification. Those of earlier versions of Tickwheel do not name the queue."""
        name = queue_of_config_key(self._namespace, payload)
        if name is None or len(self._names) >= QUEUES_MAX:
            self._are_unknown = True
        else:
            self._names.add(name)

    def take(self) -> list[str] | None:
        """Return the names, and forget them; None if any queue may have changed."""
        names = None if self._are_unknown else sorted(self._names)
        self._names.clear()
        self._are_unknown = False
        return names


class ObstacleWatch:
    """Calls ``on_obstacle`` once, from a thread of its own, when something speaks against driving."""

    def __init__(
        self,
        io: DriverExecutor,
        namespace: str,
        *,
        find: Callable[[], Obstacle | None],
        find_sink: Callable[[Sequence[str]], Obstacle | None],
        is_driving: Callable[[], bool],
        on_obstacle: Callable[[], None],
    ) -> None:
        """``find`` returns an obstacle or None, and ``find_sink`` the obstacle in the queues of these names or None.

        ``is_driving``: whether the process drives shards now.
        """
        self._io = io
        # The channel of one shard suffices: every change of a queue is published on all shards.
        self._channel = shard_key(namespace, 0, "adopted")
        self._changes = QueueChanges(namespace)
        self._find = find
        self._find_sink = find_sink
        self._is_driving = is_driving
        self._on_obstacle = on_obstacle
        self._wake = WakePipe()
        self._is_stopping = False
        self._log_throttle = LogThrottle()
        self._thread = Thread(target=self._run, name="tickwheel-obstacles", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop the thread, if it was started, and wait until it has ended."""
        self._is_stopping = True
        self._wake.set()
        if self._thread.ident:
            self._thread.join()
        self._wake.close()

    def _run(self) -> None:
        backoff = Backoff(longest=5.0)
        while not self._is_stopping:
            # If the user lost the right to subscribe, only the check finds the reason.
            obstacle = self._attempt(lambda: self._watch_connection(backoff)) or self._attempt(self._find)
            if obstacle:
                # After a queue got a sink, perhaps no program drives.
                level = logging.WARNING if obstacle.queue is not None else logging.INFO
                _log.log(level, "this process stops driving: %s", obstacle.text)
                self._on_obstacle()
                return
            if not self._is_stopping:
                self._wake.wait(1000 * backoff.next())

    def _attempt(self, find: Callable[[], Obstacle | None]) -> Obstacle | None:
        """Return what ``find`` returns. After an error, log the error and return None."""
        try:
            return None if self._is_stopping else find()
        except (RedisError, OSError, TickwheelError, ScriptError) as error:
            _log.debug("cannot check whether this process may drive; trying again: %s", error)
        except Exception as error:
            # This is a bug. Perhaps only the current data causes it.
            if self._log_throttle.should_log(repr(error)):
                _log.exception("the check whether this process may drive failed; trying again")
        return None

    def _watch_connection(self, backoff: Backoff) -> Obstacle | None:
        """Return the first obstacle, or None after `close`. Raises the first error."""
        connection = make_connection(self._io.connect(0, self._channel))
        with closing(ChannelListener(connection, self._wake.fileno(), on_payload=self._changes.on_payload)) as listener:
            # Subscribes before the first check, so that no change is missed.
            listener.set_channels([self._channel])
            checked_ms = -inf
            while not self._is_stopping:
                began_ms, names = monotonic_ms(), self._changes.take()
                if names is None or began_ms - checked_ms >= (CHECK_MS if self._is_driving() else STANDBY_CHECK_MS):
                    checked_ms, obstacle = began_ms, self._find()
                else:
                    obstacle = self._find_sink(names) if names else None
                if obstacle:
                    return obstacle
                backoff.reset()
                took_ms = monotonic_ms() - began_ms
                listener.poll(monotonic_ms() + CHECK_MS)
                if self._changes:
                    self._pause(_PAUSE_FACTOR * took_ms)
                    listener.poll(monotonic_ms())
        return None

    def _pause(self, shortest_ms: float) -> None:
        """Wait for a random time, at least ``shortest_ms``, or until `close`."""
        began_ms, part = monotonic_ms(), _random()
        while not self._is_stopping:
            jitter_ms = JITTER_MS if self._is_driving() else STANDBY_JITTER_MS
            left_ms = began_ms + max(jitter_ms * part, shortest_ms) - monotonic_ms()
            if left_ms <= 0:
                return
            self._wake.wait(min(left_ms, _SLICE_MS))
