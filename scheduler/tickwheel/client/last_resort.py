"""Lets a program drive its namespace as a last resort: by a child process, while no `tickwheel events` drives it.

The child takes part in the election by lease with the last rank, so it gets only shards that no event process can
drive. The child ends with this program, however this program ends.

A program that drains lets its child hand the shards over. If the program that took them over ends first, as programs do
that are stopped at the same time, the program that still drains starts a child again. So it does if its child, or the
other program, is killed.
"""

import logging
import os
import threading
import time
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tickwheel.client.leader_watch import LeaderWatch
from tickwheel.client.settings import ClientSettings
from tickwheel.client.sink_watch import SinkWatch
from tickwheel.election.lease_member import KIND
from tickwheel.election.lock_file import LockFileElection
from tickwheel.embedded.socket_owner import find_data_dir
from tickwheel.errors import TickwheelError, Unavailable
from tickwheel.kafka.options import KafkaOptions
from tickwheel.model.served_topics import ServedTopics
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.driving.obstacles import MISSING, Obstacle, find_obstacle
from tickwheel.redis import url as redis_url
from tickwheel.redis.blocking_executor import RedisExecutor
from tickwheel.redis.pools import ConnectionPools
from tickwheel.runtime.backoff import Backoff
from tickwheel.runtime.child_process import LONG_LIFE_S, ChildProcess
from tickwheel.runtime.log_fields import log_fields
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.runtime.python_command import python_module

# The first and the longest pause before the namespace is checked again while the same obstacle stays, in seconds.
CHECK_BACKOFF_S: Final = (30.0, 300.0)
# The pause if the namespace does not exist, or cannot be checked. To check whether it exists needs one call.
_RETRY_S: Final = 2.0
# The first and the longest pause before another child is started, after a child that has ended without an obstacle.
_RESTART_BACKOFF_S: Final = (2.0, 30.0)
# The pause between two checks whether nobody drives, while this program drains after its child has ended. In a
# hand-over, a shard has no leader for a shorter time.
_RELEASED_S: Final = 1.0
# The timeout of each call of a check, in seconds. It delays the end of the program.
_CALL_S: Final = 2.0
# More than the time in which a child that is stopped hands its shards over.
_STOP_S: Final = 5.0

_log = logging.getLogger("tickwheel.driving")


@dataclass(frozen=True, slots=True)
class LastResortOptions:
    """How a program drives as a last resort. ``kafka`` names the brokers, for the relay and for sinks.

    With ``json``, the log of the child has JSON objects. ``is_demanded``: the user has asked this program to drive
    (`drive=True`). Then it claims the shards of a new namespace at once, drives with lock files if the shards have
    them, and warns if it cannot drive. ``metrics_socket`` is the Unix socket, in a private folder, on which the child
    serves its metrics to this program.
    """

    kafka: KafkaOptions | None = None
    json: bool = False
    is_demanded: bool = False
    metrics_socket: Path | None = None

    @property
    def topics(self) -> ServedTopics | None:
        """The topics whose sinks the program serves; None without brokers."""
        return None if self.kafka is None else self.kafka.served_topics


def find_obstacle_of_settings(settings: ClientSettings, *, is_demanded: bool = False) -> Obstacle | None:
    """Return why a client with these settings cannot drive as a last resort; None if it may be able to."""
    if settings.is_service:
        return Obstacle("a client of the service cannot drive")
    if not settings.uses_lease_election:
        return Obstacle(
            "event processes of a Redis Cluster elect leaders by lease only with `tickwheel events --election lease`"
        )
    # If the user demands it, the program drives as the programs of the data directory do: with a lock file.
    if not is_demanded and (data_dir := _find_data_dir(settings)) is not None:
        return Obstacle(f"the server is the embedded server of the data directory {data_dir}, whose own programs drive")
    return None


def _find_data_dir(settings: ClientSettings) -> object:
    return None if settings.url is None else find_data_dir(settings.url)


class LastResort:
    """Checks the namespace in a thread, and runs the child while nothing speaks against it, from `start` to `stop`."""

    def __init__(self, settings: ClientSettings, options: LastResortOptions) -> None:
        self._settings = settings
        self._options = options
        # Why this program does not drive, by the last check, and the reason that was logged last.
        self._obstacle: Obstacle | None = None
        self._logged: Obstacle | None = None
        self._log_throttle = LogThrottle()
        self._is_decided = threading.Event()
        self._changed = threading.Condition()
        self._is_stopping = self._is_ending = self._has_child_ended = False
        # Whether the sink that is the obstacle was removed, or replaced, during the pause.
        self._has_sink_ended = False
        # Whether this program had a child that has ended. Perhaps it ended because this program drains.
        self._has_had_child = False
        self._leader_watch = LeaderWatch(settings.namespace)
        self._obstacle_pauses = Backoff(*CHECK_BACKOFF_S)
        self._restart_pauses = Backoff(*_RESTART_BACKOFF_S)
        # The kind of the election in which the child takes part.
        self._kind = KIND
        self._child: ChildProcess | None = None
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="tickwheel-last-resort", daemon=True)

    @property
    def pid(self) -> int | None:
        """The id of the child's process; None while this program does not drive."""
        child = self._child
        return None if child is None else child.pid

    def start(self) -> None:
        """Start the thread. If the host has no resources for another thread, log this: the program does not drive."""
        try:
            self._thread.start()
        except RuntimeError as error:
            self._obstacle = Obstacle(str(error))
            self._is_decided.set()
            _log.warning("this program does not drive namespace %s: %s", self._settings.namespace, error)

    def begin_stop(self) -> None:
        """Let the child hand its shards over as soon as another process can drive them.

        While no other process takes part in the election, the child drives on until `stop`. After the hand-over,
        another child is started only if nobody drives.
        """
        with self._changed:
            self._is_ending = True
            child = self._child
            self._changed.notify_all()
        if child is not None:
            child.send_last(b"\n")

    def stop(self) -> None:
        """Stop the child, which hands its shards over, and wait until the child has ended.

        Does nothing in a process forked from this program.
        """
        if os.getpid() != self._pid:
            return
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        if self._thread.ident:
            self._thread.join(2 * _STOP_S)

    def may_drive(self, timeout_s: float) -> bool:
        """Return whether the child drives if nobody else does. Waits for the first check, at most ``timeout_s``."""
        return self._is_decided.wait(timeout_s) and self._obstacle is None

    def _run(self) -> None:
        while not self._is_stopping and (self._has_had_child or not self._is_ending):
            was_ending = self._is_ending
            try:
                pause_s = self._drive_leaderless() if was_ending else self._drive()
            except (TickwheelError, OSError, RuntimeError) as error:
                self._log_failure(error)
                pause_s = _RETRY_S
            except Exception as error:
                # This is a bug. Perhaps only the current data causes it.
                if self._log_throttle.should_log(repr(error)):
                    _log.exception("the check whether this program may drive failed; trying again")
                pause_s = _RETRY_S
            self._wait(pause_s, was_ending)

    def _wait(self, pause_s: float, was_ending: bool) -> None:
        """Wait until `stop`, or until `begin_stop` if it was not called before, for at most ``pause_s``.

        If the obstacle is the sink of a queue, wait until the queue has no such sink, unless this program drains.
        """

        def is_over() -> bool:
            return self._is_stopping or self._is_ending != was_ending or self._has_sink_ended

        self._has_sink_ended = False
        queue = None if was_ending or self._obstacle is None else self._obstacle.queue
        with ExitStack() as stack:
            if queue is not None:
                # If the process has too many open files, the check after the pause notices the same.
                with suppress(OSError):
                    watch = SinkWatch(self._settings, queue, self._options.topics, self._on_sink_end)
                    stack.enter_context(closing(watch)).start()
            with self._changed:
                self._changed.wait_for(is_over, pause_s)

    def _on_sink_end(self) -> None:
        with self._changed:
            self._has_sink_ended = True
            self._changed.notify_all()

    def _drive(self) -> float:
        """Check the namespace, and run the child if it may drive. Return the pause before the next call."""
        self._check()
        if self._obstacle is None:
            self._run_child()
            # The child may have ended because of an obstacle. Log the obstacle now.
            if not self._is_stopping and not self._is_ending:
                self._check()
        if self._obstacle == MISSING:
            return _RETRY_S
        # Without an obstacle, the child has ended for a reason that is over, such as a lost namespace, or with an error
        # that the next child probably has, too.
        return (self._obstacle_pauses if self._obstacle else self._restart_pauses).next()

    def _drive_leaderless(self) -> float:
        """Run the child again if nobody drives. Return the pause before the next call."""
        # After an error, and after another child, the comparisons start from nothing.
        watch, self._leader_watch = self._leader_watch, LeaderWatch(self._settings.namespace)
        with closing(self._open()) as io:
            is_leaderless = io.run(watch.check())
        if not is_leaderless:
            self._leader_watch = watch
            return _RELEASED_S
        self._check()
        if self._obstacle:
            return self._obstacle_pauses.next()
        self._run_child()
        return self._restart_pauses.next()

    def _log_failure(self, error: Exception) -> None:
        """Log that the server does not answer, or that the host has no resources for a child."""
        # A worker and a service have other threads that log that the server does not answer.
        is_known = isinstance(error, Unavailable) and not self._options.is_demanded
        level = logging.DEBUG if is_known else self._log_throttle.level(str(error))
        _log.log(level, "cannot drive namespace %s; trying again: %s", self._settings.namespace, error)

    def _check(self) -> None:
        """Find and log the reason why this program does not drive, and choose the kind of election."""
        is_demanded = self._options.is_demanded
        obstacle = find_obstacle_of_settings(self._settings, is_demanded=is_demanded) or self._find_obstacle()
        self._obstacle = obstacle
        self._is_decided.set()
        if obstacle != self._logged:
            self._obstacle_pauses.reset()
        if obstacle and obstacle != self._logged:
            _log.log(
                logging.WARNING if self._options.is_demanded or obstacle.queue is not None else logging.INFO,
                "this program does not drive namespace %s: %s",
                *(self._settings.namespace, obstacle.text),
                extra=log_fields("does not drive", reason=obstacle.text),
            )
        self._logged = obstacle

    def _find_obstacle(self) -> Obstacle | None:
        with closing(self._open()) as io:

            def find(kind: str) -> Obstacle | None:
                context, replicas = NamespaceContext(self._settings.namespace), self._settings.durability.replicas
                return io.run(find_obstacle(context, kind, topics=self._options.topics, replicas=replicas))

            if self._options.is_demanded and _find_data_dir(self._settings) is not None:
                self._kind = LockFileElection.kind
                return find(self._kind)
            self._kind = KIND
            if (obstacle := find(KIND)) and self._options.is_demanded and not find(LockFileElection.kind):
                # The event processes of the namespace have lock files, as all had before. The child stands by for them.
                self._kind = LockFileElection.kind
                return None
            return obstacle

    def _open(self) -> RedisExecutor:
        """Return an executor for one check. The timeout of the client may be too short for a check."""
        settings = self._settings
        assert settings.url is not None
        return RedisExecutor(ConnectionPools(settings.url, _CALL_S), settings.display_url, _CALL_S)

    def _run_child(self) -> None:
        """Run the child until `stop`, or until the child ends for a reason that another check may find."""
        with self._changed:
            if self._is_stopping or (self._is_ending and not self._has_had_child):
                return
            self._has_child_ended = False
        settings = self._settings
        assert settings.url is not None
        started = time.monotonic()
        # The URL may contain a password, and every user of the host can read a process's arguments.
        environment = {redis_url.VARIABLE: settings.url}
        child = ChildProcess(self._command(), environment, stop_s=_STOP_S, on_end=self._on_child_end)
        with self._changed:
            self._child = child
        if self._is_ending:
            child.send_last(b"\n")
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopping or self._has_child_ended)
            self._child = None
            self._has_had_child = True
        child.stop()
        if time.monotonic() - started > LONG_LIFE_S:
            self._restart_pauses.reset()

    def _command(self) -> list[str]:
        settings, options = self._settings, self._options
        command = python_module("tickwheel.event_process", "--until-eof", "--namespace", settings.namespace)
        if options.json:
            command += ["--json"]
        if self._kind == LockFileElection.kind:
            # The namespace exists. If it is lost, a program decides whether to create it again.
            return [*command, "--existing", "--lock", str(settings.election_lock)]
        command += ["--last-resort"]
        if options.is_demanded:
            command += ["--at-once"]
        if options.metrics_socket is not None:
            command += [f"--metrics-socket={options.metrics_socket}"]
        if options.kafka is not None:
            command += [*options.kafka.arguments(), f"--replicas={settings.durability.replicas}"]
        return command

    def _on_child_end(self, code: int) -> bool:
        """Return whether the next check decides about another child. A child that has crashed is restarted."""
        if code != 0 and not self._is_ending and (self._kind == KIND or code < 0):
            return False
        with self._changed:
            self._has_child_ended = True
            self._changed.notify_all()
        return True
