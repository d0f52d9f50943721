"""Sidecars: the relay and the sink forwarder. Each runs in a thread next to a shard's driver, with the driver's fence.

A failure of a sidecar does not stop the wheel: the sidecar restarts its task after a back-off. If a newer fence
replaces the sidecar's fence, the sidecar ends.
"""

import logging
from collections.abc import Callable
from threading import Event, Thread
from typing import Protocol

from redis.exceptions import RedisError

from tickwheel.driver.fenced_shard import FencedShard
from tickwheel.driver.queue_lookup import NamespaceLost
from tickwheel.driver.stats import WheelStats
from tickwheel.errors import Fenced, TickwheelError
from tickwheel.runtime.backoff import Backoff
from tickwheel.runtime.log_throttle import LogThrottle

_log = logging.getLogger("tickwheel.event_process")
# Shared by all shards.
_log_throttle = LogThrottle()


class SidecarTask(Protocol):
    """The task of a sidecar. After an exception other than Fenced, the sidecar waits and calls `run` again."""

    label: str

    def run(self, stopping: Event, on_progress: Callable[[], None]) -> None:
        """Run until ``stopping`` is set. Call ``on_progress`` after each success, which resets the back-off."""

    def wake(self) -> None:
        """Make `run` check ``stopping`` now. May be called at any time from any thread."""

    def close(self) -> None:
        """Free all resources. Called after the last `run`."""


class Sidecar:
    """Runs one task for one shard. `stop` returns immediately; `join` waits until the thread has ended."""

    def __init__(self, shard: FencedShard, task: SidecarTask) -> None:
        self._shard = shard
        self._task = task
        self._stopping = Event()
        self._thread = Thread(target=self._run, name=f"tickwheel-{task.label}-{shard.number}", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        self._stopping.set()
        self._task.wake()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        label = f"shard {self._shard.number}: the {self._task.label}"
        backoff = Backoff()
        # A bug may recur at each attempt, and its traceback is long.
        bug_log_throttle = LogThrottle()
        try:
            while not self._stopping.is_set():
                try:
                    self._task.run(self._stopping, backoff.reset)
                except Fenced as fenced:
                    # The thread of the driver gets the same error, and claims the shard again or ends.
                    _log.info("%s ends: %s", label, fenced)
                    return
                except NamespaceLost:
                    # The event process ends, too, and logs the reason.
                    return
                except (TickwheelError, RedisError, OSError) as error:
                    seconds = backoff.next()
                    if not self._stopping.is_set():
                        level = _log_throttle.level(f"{self._task.label}: {error}")
                        _log.log(level, "%s failed; retrying in %.2f s: %s", label, seconds, error)
                    self._stopping.wait(seconds)
                except Exception:
                    # This is a bug. Perhaps only the current data causes it, so retry: without a retry, the task would
                    # not run again until the driver gets a new fence.
                    if bug_log_throttle.should_log(label):
                        _log.exception("%s crashed; restarting (repeats are throttled)", label)
                    self._stopping.wait(backoff.next())
        finally:
            self._task.close()


StartSidecar = Callable[[FencedShard, WheelStats], Sidecar]
