"""What runs beside a shard's wheel while it is led under one fence, in a thread of its own: the relay, the sinks.

It cannot stop the wheel: after a failure it begins again, and a newer fence ends it.
"""

import logging
from collections.abc import Callable
from threading import Event, Thread
from typing import Protocol

from redis.exceptions import RedisError

from tickwheel.driver.fenced_shard import FencedShard
from tickwheel.driver.stats import WheelStats
from tickwheel.errors import Fenced, TickwheelError
from tickwheel.runtime.backoff import Backoff
from tickwheel.runtime.log_throttle import LogThrottle

_log = logging.getLogger("tickwheel.event_process")
# Of all shards together.
_log_throttle = LogThrottle()


class SidecarTask(Protocol):
    """What a companion does. Whatever ``run`` raises but Fenced is waited out, then ``run`` is called again."""

    label: str

    def run(self, stopping: Event, on_progress: Callable[[], None]) -> None:
        """Until ``stopping`` is set; calls ``works`` when something has succeeded."""

    def wake(self) -> None:
        """Look at ``stopping`` now. May be called at any time from any thread."""

    def close(self) -> None:
        """Free what is held. Only after ``run``."""


class Sidecar:
    """One work of one shard. ``stop`` returns at once; ``join`` waits until it has ended."""

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
        # One is met again at each attempt, and its traceback is long.
        bug_log_throttle = LogThrottle()
        try:
            while not self._stopping.is_set():
                try:
                    self._task.run(self._stopping, backoff.reset)
                except Fenced as fenced:
                    # The leader's own loop hears the same, and claims anew or ends.
                    _log.info("%s ends: %s", label, fenced)
                    return
                except (TickwheelError, RedisError, OSError) as error:
                    seconds = backoff.next()
                    if not self._stopping.is_set():
                        level = _log_throttle.level(f"{self._task.label}: {error}")
                        _log.log(level, "%s failed, again in %.2f s: %s", label, seconds, error)
                    self._stopping.wait(seconds)
                except Exception:
                    # A mistake in it. It may concern what is there now only: to end would be to end for good.
                    if bug_log_throttle.should_log(label):
                        _log.exception("%s failed by a mistake in it, and begins again; told once in a while", label)
                    self._stopping.wait(backoff.next())
        finally:
            self._task.close()


StartSidecar = Callable[[FencedShard, WheelStats], Sidecar]
