"""Lets a program drive its namespace as a last resort: by a child process, while no `tickwheel events` drives it.

The child takes part in the election by lease with the last rank, so it gets only shards that no event process can
drive. The child ends with this program, however this program ends.
"""

import logging
import sys
import threading
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from tickwheel.client.settings import ClientSettings
from tickwheel.election.lease_member import KIND
from tickwheel.errors import TickwheelError, Unavailable
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.driving.obstacles import find_obstacle
from tickwheel.redis import url as redis_url
from tickwheel.redis.blocking_executor import RedisExecutor
from tickwheel.redis.pools import ConnectionPools
from tickwheel.runtime.child_process import ChildProcess
from tickwheel.runtime.log_fields import log_fields
from tickwheel.runtime.log_throttle import LogThrottle

# Pause before the namespace is checked again, in seconds: after an obstacle, and if the server does not answer.
CHECK_S: Final = 30.0
_RETRY_S: Final = 5.0
# More than the time in which a child that is stopped hands its shards over.
_STOP_S: Final = 5.0

_log = logging.getLogger("tickwheel.driving")


@dataclass(frozen=True, slots=True)
class LastResortOptions:
    """How a program drives as a last resort. ``kafka`` is the address of brokers, for the relay and for sinks.

    With ``json``, the log of the child has JSON objects.
    """

    kafka: str | None = None
    json: bool = False


def find_obstacle_of_settings(settings: ClientSettings) -> str:
    """Return why a client with these settings cannot drive as a last resort; an empty text if it may be able to."""
    if settings.is_service:
        return "a client of the service cannot drive"
    if settings.uses_lease_election:
        return ""
    return "event processes of a Redis Cluster elect leaders by lease only with `tickwheel events --election lease`"


class LastResort:
    """Checks the namespace in a thread, and runs the child while nothing speaks against it, from `start` to `stop`."""

    def __init__(self, settings: ClientSettings, options: LastResortOptions) -> None:
        self._settings = settings
        self._options = options
        # Why this program does not drive; None before the first check.
        self._obstacle: str | None = None
        self._logged = ""
        self._log_throttle = LogThrottle()
        self._is_decided = threading.Event()
        self._changed = threading.Condition()
        self._is_stopping = self._has_child_ended = False
        self._thread = threading.Thread(target=self._run, name="tickwheel-last-resort", daemon=True)

    def start(self) -> None:
        """Start the thread. Raises RuntimeError if the host has no resources for another thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the child, which hands its shards over, and wait until the child has ended."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        if self._thread.ident:
            self._thread.join(2 * _STOP_S)

    def may_drive(self, timeout_s: float) -> bool:
        """Return whether the child drives if nobody else does. Waits for the first check, at most ``timeout_s``."""
        self._is_decided.wait(timeout_s)
        return self._obstacle == ""

    def _run(self) -> None:
        while not self._is_stopping:
            try:
                self._decide(find_obstacle_of_settings(self._settings) or self._find_obstacle())
                if self._obstacle == "":
                    self._run_child()
                    # The child has ended because of an obstacle. Log the obstacle now.
                    self._decide("" if self._is_stopping else self._find_obstacle())
                # Without an obstacle, the child has ended for a reason that is over, such as a lost namespace.
                pause_s = CHECK_S if self._obstacle else _RETRY_S
            except (TickwheelError, OSError, RuntimeError) as error:
                # The server does not answer, which other threads log, or the host has no resources for a child.
                level = logging.DEBUG if isinstance(error, Unavailable) else self._log_throttle.level(str(error))
                _log.log(level, "cannot drive namespace %s; trying again: %s", self._settings.namespace, error)
                pause_s = _RETRY_S
            with self._changed:
                self._changed.wait_for(lambda: self._is_stopping, pause_s)

    def _decide(self, obstacle: str) -> None:
        self._obstacle = obstacle
        self._is_decided.set()
        if obstacle and obstacle != self._logged:
            _log.info(
                "this program does not drive namespace %s: %s",
                *(self._settings.namespace, obstacle),
                extra=log_fields("does not drive", reason=obstacle),
            )
        self._logged = obstacle

    def _find_obstacle(self) -> str:
        settings = self._settings
        assert settings.url is not None
        servers = ConnectionPools(settings.url, settings.answer_s)
        with closing(RedisExecutor(servers, settings.display_url, settings.timeout_s)) as io:
            context = NamespaceContext(settings.namespace)
            return io.run(find_obstacle(context, KIND, has_kafka=self._options.kafka is not None))

    def _run_child(self) -> None:
        """Run the child until `stop`, or until the child ends because of an obstacle."""
        settings, options = self._settings, self._options
        assert settings.url is not None
        command = [sys.executable, "-m", "tickwheel.event_process", "--until-eof", "--last-resort"]
        command += ["--namespace", settings.namespace]
        if options.kafka is not None:
            command += ["--kafka", options.kafka]
        if options.json:
            command += ["--json"]
        self._has_child_ended = False
        # The URL may contain a password, and every user of the host can read a process's arguments.
        child = ChildProcess(command, {redis_url.VARIABLE: settings.url}, stop_s=_STOP_S, on_end=self._on_child_end)
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopping or self._has_child_ended)
        child.stop()

    def _on_child_end(self) -> None:
        with self._changed:
            self._has_child_ended = True
            self._changed.notify_all()
