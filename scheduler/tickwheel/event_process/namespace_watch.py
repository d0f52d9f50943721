"""Checks that the namespace of an event process still exists, also while the process is idle or leads no shard.

A leader notices lost data when the shard rejects its fence. But the driver of an idle shard calls its server only once
a minute, and a process that stands by calls no shard.
"""

import logging
from collections.abc import Callable
from threading import Event, Thread
from typing import Final

from redis.exceptions import RedisError

from tickwheel.driver.queue_lookup import NamespaceLost, QueueLookup
from tickwheel.errors import TickwheelError
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.runtime.time import monotonic_ms
from tickwheel.storage.script_errors import ScriptError

INTERVAL_S: Final = 5.0
# The members of an election by lease notice a lost namespace by their calls. So this check is only a second one, and 50
# members make fewer than 2 such calls a second. A member with a long lease calls rarely, and checks every INTERVAL_S.
LONG_INTERVAL_S: Final = 30.0

_log = logging.getLogger("tickwheel.event_process")


def require_namespace(queues: QueueLookup, namespace: str) -> None:
    """Raise NamespaceLost if the namespace does not exist, or not with the shards that this process drives."""
    if not queues.check_shards():
        raise NamespaceLost(
            f"namespace {namespace!r} no longer exists: its server has lost its data (a restart without persistence,"
            " FLUSHALL, or a failover to an empty replica), or is another server now, or the namespace was deleted. The"
            " event process ends. Restore the data, or start the program again: it then creates a missing namespace"
        )


class NamespaceWatch:
    """Checks the namespace in its own thread, until it is lost or `stop` is called.

    The watch checks every INTERVAL_S seconds if ``must_check`` returns True, otherwise every LONG_INTERVAL_S seconds.
    """

    def __init__(
        self,
        queues: QueueLookup,
        namespace: str,
        on_loss: Callable[[NamespaceLost], None],
        must_check: Callable[[], bool],
    ) -> None:
        self._queues = queues
        self._namespace = namespace
        self._on_loss = on_loss
        self._must_check = must_check
        self._log_throttle = LogThrottle()
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="tickwheel-namespace", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. A call in flight may end later."""
        self._stopping.set()

    def _run(self) -> None:
        checked_ms = monotonic_ms()
        while not self._stopping.wait(INTERVAL_S):
            if not self._must_check() and monotonic_ms() - checked_ms < 1000 * LONG_INTERVAL_S:
                continue
            checked_ms = monotonic_ms()
            try:
                require_namespace(self._queues, self._namespace)
            except NamespaceLost as error:
                self._on_loss(error)
                return
            except (RedisError, OSError, TickwheelError, ScriptError) as error:
                # The wheel needs only the shards that this process leads.
                _log.debug("cannot check that the namespace exists: %s", error)
            except Exception as error:
                # This is a bug. Perhaps only the current data causes it.
                if self._log_throttle.should_log(repr(error)):
                    _log.exception("the check that the namespace exists failed; trying again (repeats are throttled)")
