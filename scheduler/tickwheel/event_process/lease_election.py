"""Election by lease: processes on any number of hosts share the shards, with nothing but the Redis of the namespace.

One thread does all the work of the election. It executes the commands of `LeaseSteps`, and connects again after errors.
While the server of the metadata shard cannot be reached, nobody is removed from the election, and leaders drive on.
"""

import logging
import uuid
from collections.abc import Callable
from contextlib import closing
from math import inf
from random import SystemRandom
from threading import Event, Lock, Thread
from typing import Final

from redis.exceptions import AuthenticationError, RedisError, ResponseError

from tickwheel.election.election import owner_name
from tickwheel.election.lease_attendance import Attendance
from tickwheel.election.lease_member import CALLS_PER_LEASE, LeaseMember
from tickwheel.election.lease_shards import LeaseLeadership, LeaseShards
from tickwheel.election.lease_steps import Command, LeaseSteps, ReadClaims, ReleaseShards, Wait
from tickwheel.errors import Forbidden, TickwheelError
from tickwheel.event_process.lease_connection import LeaseConnection
from tickwheel.event_process.namespace_watch import INTERVAL_S
from tickwheel.event_process.shard_loop import Connect
from tickwheel.runtime.backoff import Backoff
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.runtime.time import monotonic_ms
from tickwheel.runtime.wake_pipe import WakePipe
from tickwheel.storage.script_errors import NAMESPACEGONE, ScriptError

# How long a process that ends drives on while it waits for other processes to take over its shards.
HAND_OVER_S: Final = 0.7
CLOSE_S: Final = 1.0
# The maximum number of reasons that are kept to log each once.
_REJECTIONS_MAX: Final = 20

_log = logging.getLogger("tickwheel.event_process")
_log_throttle = LogThrottle()


class LeaseElection:
    """One member of the election."""

    kind = "lease"

    def __init__(
        self,
        connect: Connect,
        namespace: str,
        shards: int,
        *,
        rank: int,
        lease_ms: float,
        waits_for_unclaimed: bool = True,
        is_cluster: bool = False,
    ) -> None:
        """``connect`` returns a client of a shard's server. Its time-out should be a quarter of the lease.

        ``rank`` is EVENT_PROCESS or LAST_RESORT. For ``waits_for_unclaimed``, see `LeaseMember`. In a cluster, shards
        have different servers. The first call of `acquire` connects.
        """
        self.member = uuid.uuid4().hex
        random = SystemRandom().random
        self._connect = connect
        self._namespace = namespace
        self._count = shards
        self._lease_ms = lease_ms
        self._is_cluster = is_cluster
        # When the last call of the election has succeeded, on the monotonic clock.
        self._attended_at = -inf
        self._wake = WakePipe()
        self._state = LeaseMember(
            self.member,
            shards,
            rank=rank,
            name=owner_name(),
            lease_ms=lease_ms,
            random=random,
            waits_for_unclaimed=waits_for_unclaimed,
        )
        self._shards = LeaseShards(self.member, self._wake.set)
        self._steps = LeaseSteps(self._state, self._shards, lease_ms=lease_ms, clock=monotonic_ms, random=random)
        # Whether the calls of the election are too rare to notice soon that the namespace is gone.
        self._calls_rarely = lease_ms / CALLS_PER_LEASE > 1000 * INTERVAL_S
        # Whether the last call was rejected because the namespace is gone.
        self._is_gone = False
        # The reasons for which the server has rejected calls since the last success. Each is logged once.
        self._rejections: set[str] = set()
        self._has_logged_unreadable = False
        self._is_closing = False
        self._starting = Lock()
        self._thread = Thread(target=self._run, name="tickwheel-election", daemon=True)

    @property
    def must_check_namespace(self) -> bool:
        """Whether `NamespaceWatch` must check the namespace soon. Any thread may read it."""
        return self._is_gone or self._calls_rarely

    @property
    def unreadable_nodes(self) -> int:
        """How often this member ignored a row because no event process writes such a row."""
        return self._state.unreadable_rows

    @property
    def others(self) -> int:
        """How many other members go on writing their rows. Any thread may read the number."""
        return len(self._state.others(monotonic_ms()))

    @property
    def has_higher_members(self) -> bool:
        """Whether one of these members has a higher id. Any thread may read it."""
        return any(member > self.member for member in self._state.others(monotonic_ms()))

    def acquire(self, shard: int, stop: Event, on_loss: Callable[[], None]) -> LeaseLeadership | None:
        """Wait until the shard is assigned to this process and free. Return the leadership, to claim the shard.

        Return None if the process leaves the election, or if ``stop`` was set before the call.
        """
        if stop.is_set():
            return None
        with self._starting:
            if not self._thread.ident:
                self._thread.start()
        return self._shards.wait_for(shard, on_loss).get()

    def resign(self, shard: int) -> bool:
        """Leave the shard to others until the next `acquire`, and return True.

        Change nothing, and return False, if the others probably cannot reach the shard either: its server is that of
        the metadata, which this process cannot reach now, or all others avoid the shard.
        """
        has_attended = monotonic_ms() - self._attended_at < self._lease_ms / 2
        if not (self._is_cluster and has_attended) or self._state.is_avoided_by_others(shard):
            return False
        self._shards.resign(shard)
        return True

    def leave(self) -> None:
        """Leave the election. Wait until others have taken over all shards, for at most HAND_OVER_S."""
        self._state.is_leaving = True
        self._shards.close()
        if self._thread.ident:
            self._shards.await_losses(HAND_OVER_S)

    def close(self) -> None:
        """Release all shards, and end the thread."""
        self._is_closing = True
        self._wake.set()
        if self._thread.ident:
            self._thread.join(CLOSE_S)
        if not self._thread.is_alive():
            self._wake.close()

    def _run(self) -> None:
        # While this process waits to connect again, its beat stands still.
        backoff = Backoff(longest=min(2.0, self._lease_ms / 1000 / CALLS_PER_LEASE))
        while not self._is_closing:
            try:
                with closing(self._open()) as connection:
                    self._take_part(connection, backoff)
            except (ScriptError, ResponseError, AuthenticationError, Forbidden) as error:
                self._on_rejected(error)
            except (RedisError, OSError, TickwheelError) as error:
                level = _log_throttle.level(f"election: {error}")
                _log.log(level, "the server of the election does not answer; trying again: %s", error)
            except Exception as error:
                # This is a bug. The loops of the shards need the thread.
                if _log_throttle.should_log(f"bug: {error!r}"):
                    _log.exception("the thread of the election failed; trying again (repeats are throttled)")
            self._wake.clear()
            if not self._is_closing:
                self._wake.wait(1000 * backoff.next())

    def _on_rejected(self, error: Exception) -> None:
        """Log the reason once: while the server rejects the calls, the same reason comes again with each attempt."""
        if isinstance(error, ScriptError) and error.code == NAMESPACEGONE:
            # `NamespaceWatch` checks this, and reports it.
            self._is_gone = True
            _log.debug("the election does not accept this process: %s", error)
            return
        is_new = str(error) not in self._rejections and len(self._rejections) < _REJECTIONS_MAX
        if is_new:
            self._rejections.add(str(error))
        level = logging.WARNING if is_new else logging.DEBUG
        _log.log(level, "the server rejects the calls of the election; trying again: %s", error)

    def _log_unreadable(self) -> None:
        if self._state.unreadable_rows and not self._has_logged_unreadable:
            self._has_logged_unreadable = True
            _log.warning(
                "namespace %s: the election has a row that no version of Tickwheel writes; it is ignored, and removed"
                " if it stays the same",
                self._namespace,
            )

    def _open(self) -> LeaseConnection:
        answer_ms = self._lease_ms / CALLS_PER_LEASE
        return LeaseConnection(
            *(self._connect, self._namespace, self.member, self._count, self._wake.fileno(), answer_ms)
        )

    def _take_part(self, connection: LeaseConnection, backoff: Backoff) -> None:
        steps = self._steps.run()
        command = next(steps)
        while not self._is_closing:
            reply = self._execute(connection, command)
            if isinstance(command, Attendance):
                self._attended_at = monotonic_ms()
            if isinstance(command, Attendance) and not command.is_first:
                backoff.reset()
                self._rejections.clear()
                self._is_gone = False
                self._log_unreadable()
            command = steps.send(reply)
        connection.release(self._shards.releases())

    def _execute(self, connection: LeaseConnection, command: Command) -> object:
        match command:
            case Attendance():
                return connection.attend(command)
            case ReadClaims(shards):
                return connection.read_claims(shards)
            case ReleaseShards(fences):
                connection.release(fences)
                return None
            case Wait(until_ms):
                is_news = connection.wait(until_ms)
                self._wake.clear()
                if is_news:
                    self._steps.on_change()
                return None
