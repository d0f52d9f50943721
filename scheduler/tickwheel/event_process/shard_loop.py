"""Drives one shard while this process leads it: sends the driver's commands over a connection, and returns the replies.

After a connection error, the loop starts a new driver on a new connection. If a newer leader has claimed the shard,
this process becomes a candidate for the shard again.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from math import inf
from threading import Event
from typing import Any, Final

from redis import Redis
from redis.exceptions import RedisError

from tickwheel.driver.commands import Command, ReadClaim
from tickwheel.driver.config import DriverConfig
from tickwheel.driver.fenced_shard import WritesRefused
from tickwheel.driver.queue_lookup import NamespaceLost, QueueLookup
from tickwheel.driver.run_steps import next_command
from tickwheel.driver.server_clock import ServerClock
from tickwheel.driver.shard_connection import ShardConnection
from tickwheel.driver.shard_driver import ShardDriver
from tickwheel.driver.unknown_queues import QueueRestored
from tickwheel.election.election import Election, Leadership, OnFenced
from tickwheel.errors import DataLoss, Fenced, TickwheelError
from tickwheel.event_process.loop_waits import LoopWaits
from tickwheel.event_process.namespace_watch import require_namespace
from tickwheel.event_process.reachability import Reachability
from tickwheel.event_process.sidecar import Sidecar, StartSidecar
from tickwheel.event_process.watched_queues import WatchedQueues
from tickwheel.plan import BROKEN_ANSWER, broken_answer_error
from tickwheel.runtime.backoff import Backoff
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.runtime.time import monotonic_ms
from tickwheel.runtime.wake_pipe import WakePipe
from tickwheel.storage import keys
from tickwheel.storage.fence import StoredClaim, client_name

# Pause before the number of shards is compared again, in ms.
_CHECK_SHARDS_MS: Final = 1_000

Connect = Callable[[int], "Redis"]

_log = logging.getLogger("tickwheel.event_process")
# Shared by all shards.
_log_throttle = LogThrottle()


class ShardLoop:
    """The loop of one shard. Call `run` in a thread of its own, and `stop` from any thread."""

    def __init__(
        self,
        connect: Connect,
        config: DriverConfig,
        clock: ServerClock,
        election: Election,
        sidecars: Sequence[StartSidecar] = (),
    ) -> None:
        """``connect`` creates a client of the shard's server; the client's socket time-out limits each call.

        Each function of ``sidecars`` starts a sidecar after the driver has claimed the shard. The sidecars are stopped
        when the driver's connection ends.
        """
        self.stats = config.stats
        self.clock = clock
        self.error: BaseException | None = None
        self._connect = connect
        self._config = config
        self._shard = config.shard
        self._election = election
        self._sidecar_starters = sidecars
        self._sidecars: list[Sidecar] = []
        self._stopping = Event()
        self._wake = WakePipe()
        self._sent = 0.0
        # None while this process does not lead.
        self._waits: LoopWaits | None = None
        # The highest epoch that the shard had when it rejected a claim of this process, since the last accepted claim.
        self._fenced_by_epoch = 0
        # The latest epoch of this process that was logged as outdated since the last accepted claim.
        self._outdated_epoch = 0
        # When to compare the number of shards, on the monotonic clock.
        self._check_shards_at = inf

    def run(self) -> None:
        """Wait to be elected, and drive while leading, until stopped.

        Raises Fenced if a newer leader drives the shard and the election has no epochs of its own (lock files).
        """
        try:
            while not self._stopping.is_set():
                leadership = self._election.acquire(self._shard, self._stopping, self._wake.set)
                if leadership is None:
                    break
                _log.info("shard %d: elected", self._shard)
                try:
                    resigned = self._lead(leadership)
                finally:
                    # Other processes may lead before this process leads again.
                    self.clock.reset()
                    self.stats.epoch, self.stats.held = 0, False
                    self._waits = None
                    leadership.release()
                if resigned:
                    self._wait_until_reachable()
        except BaseException as error:
            self.error = error
            raise
        finally:
            for sidecar in self._sidecars:
                sidecar.join()

    def stop(self) -> None:
        """Ask `run` to return after the command in flight. May be called at any time, and repeatedly."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._wake.set()

    def close(self) -> None:
        """Free all resources. Call only after `run` has returned."""
        self._wake.close()

    @property
    def working_ms(self) -> float:
        """For how long the loop has worked without a wait; 0 while it waits or does not lead. For any thread."""
        waits = self._waits
        return 0.0 if waits is None else waits.working_ms

    def _lead(self, leadership: Leadership) -> bool:
        """Drive until the leadership ends or the loop is stopped. Return whether this process has resigned."""
        backoff = Backoff()
        self._waits = waits = LoopWaits(leadership)
        queues = WatchedQueues(self._config.queues, waits)
        reachability = Reachability(monotonic_ms())
        self._wake.clear()
        while not (self._stopping.is_set() or leadership.lost):
            driver = ShardDriver(replace(self._config, queues=queues), self.clock, leadership.claims)
            try:
                connection = ShardConnection(
                    self._connect(self._shard), self._wake.fileno(), client_name(self._config.namespace, self._shard)
                )
                try:
                    self._drive(driver, queues, connection, leadership, waits)
                finally:
                    waits.begin_wait()
                    for sidecar in self._sidecars:
                        sidecar.stop()
                    connection.close()
            except (RedisError, OSError, TickwheelError, *BROKEN_ANSWER) as error:
                if isinstance(error, NamespaceLost):
                    raise
                if driver.claim_refused and not self._should_claim_again(leadership, error):
                    return False
                if driver.claimed and not isinstance(error, DataLoss):
                    backoff.reset()
                has_answered = driver.claimed or driver.claim_refused or isinstance(error, DataLoss | WritesRefused)
                is_lost = reachability.is_lost_after_error(monotonic_ms(), self._sent, has_answered=has_answered)
                if is_lost and self._election.resign(self._shard):
                    _log.error(
                        "shard %d: this process cannot reach the shard; another process takes over: %s",
                        self._shard,
                        error,
                    )
                    return True
                # After `Fenced`, the next claim decides whether a newer leader drives the shard.
                names = {Fenced: "fenced", DataLoss: "damaged", QueueRestored: "restarting", WritesRefused: "refused"}
                how = next((name for kind, name in names.items() if isinstance(error, kind)), "lost")
                # `_is_outdated` has logged a rejected claim. All shards share the throttle, so only one of them logs
                # that their server is unreachable.
                level = logging.DEBUG if driver.claim_refused else _log_throttle.level(f"{how}: {error}")
                seconds = backoff.next()
                _log.log(level, "shard %d: %s; retrying in %.2f s: %s", self._shard, how, seconds, error)
                self._wake.wait(1000 * seconds)
        return False

    def _drive(
        self,
        driver: ShardDriver,
        queues: QueueLookup,
        connection: ShardConnection,
        leadership: Leadership,
        waits: LoopWaits,
    ) -> None:
        def execute(command: Command) -> Any:
            self._sent = monotonic_ms()
            waits.begin_wait()
            try:
                reply = connection.execute(command)
                self.clock.on_reply(self._sent, monotonic_ms())
                if isinstance(command, ReadClaim) and not StoredClaim.parse(reply).fence:
                    # The shard is new, or has lost its data.
                    self._check_namespace()
            finally:
                waits.end_wait()
            return reply

        steps = driver.run()
        command = next(steps)
        sidecars_started = False
        while not (self._stopping.is_set() or leadership.lost):
            try:
                command = next_command(steps, execute, command)
            except BROKEN_ANSWER as error:
                if isinstance(error, TickwheelError):
                    raise
                raise broken_answer_error("the shard's server", error) from error
            if driver.claimed and not sidecars_started:
                sidecars_started = True
                # The shard accepts the epochs of this election, perhaps since `tickwheel shards reset-epoch`.
                self._fenced_by_epoch = self._outdated_epoch = 0
                self._start_sidecars(leadership.claims.fence)
                # If a namespace is recreated, its metadata shard has lost the fence, so the loop of this shard claims.
                self._check_shards_at = 0 if self._shard == 0 else inf
            if monotonic_ms() >= self._check_shards_at:
                self._check_shards(queues)
            self.stats.held, self.stats.clock_steps = self.clock.guard.is_holding, self.clock.guard.steps

    def _check_shards(self, queues: QueueLookup) -> None:
        """Raise NamespaceRecreated if the namespace has another number of shards: nobody would drive the new shards.

        Check again later if the namespace does not exist: this shard was claimed before the namespace is recreated.
        """
        self._check_shards_at = monotonic_ms() + _CHECK_SHARDS_MS
        try:
            if queues.check_shards():
                self._check_shards_at = inf
        except NamespaceLost:
            raise
        except (RedisError, OSError, TickwheelError) as error:
            # The wheel needs only this shard.
            _log.log(
                _log_throttle.level(f"shards: {error}"),
                "shard %d: the number of the namespace's shards cannot be compared; trying again: %s",
                *(self._shard, error),
            )

    def _check_namespace(self) -> None:
        """Raise NamespaceLost if the namespace does not exist: a claim would leave a key on a server without data."""
        try:
            require_namespace(self._config.queues, self._config.namespace)
        except NamespaceLost:
            raise
        except (RedisError, OSError, TickwheelError) as error:
            # The wheel needs only this shard.
            _log.debug("shard %d: cannot check that the namespace exists: %s", self._shard, error)

    def _start_sidecars(self, fence: bytes) -> None:
        # Sidecars with earlier fences are harmless, because the scripts reject their calls. Do not wait for a sidecar
        # that hangs.
        self._sidecars = [sidecar for sidecar in self._sidecars if sidecar.is_alive]
        shard = self._config.make_fenced_shard()
        shard.fence = fence
        self._sidecars += [start(shard, self.stats) for start in self._sidecar_starters]

    def _should_claim_again(self, leadership: Leadership, error: Exception) -> bool:
        """Return whether to claim again after the shard has rejected a claim, or else to wait for the next leadership.

        Raises the error if this process must end.
        """
        if not isinstance(error, Fenced) or leadership.on_fenced is OnFenced.END:
            raise error
        if leadership.on_fenced is OnFenced.STAND:
            _log.info("shard %d: %s; waiting to be elected", self._shard, error)
            return False
        epoch = leadership.claims.epoch
        assert epoch is not None
        return self._is_outdated(epoch, error)

    def _is_outdated(self, epoch: int, fenced: Fenced) -> bool:
        """Return whether the election is known to have lower epochs than the shard, so that it cannot win the shard.

        At the first rejection, this is not known yet: probably a newer leader of the same election drives the shard.
        """
        # `_fenced_by_epoch` is the shard's epoch in an earlier rejection. This process has won ``epoch`` since then, so
        # ``epoch`` is higher than all earlier epochs of this election. If ``epoch`` is nevertheless not higher than
        # `_fenced_by_epoch`, the shard's epoch is not from this election.
        if epoch > self._fenced_by_epoch:
            self._fenced_by_epoch = max(self._fenced_by_epoch, fenced.held or 0)
            _log.warning("shard %d: %s; becoming a candidate again", self._shard, fenced)
            return False
        if epoch != self._outdated_epoch:
            self._outdated_epoch = epoch
            _log.error(
                "shard %d: the election's epoch is %d, but the shard has already accepted epoch %d: the election's"
                " state was lost, or a leader from another election drives the shard. If there is no other election,"
                " run `tickwheel shards reset-epoch`",
                *(self._shard, epoch, self._fenced_by_epoch),
            )
        return True

    def _wait_until_reachable(self) -> None:
        backoff = Backoff()
        # The end of the leadership may have set the flag during the last attempt to connect: the waits below would end
        # at once. `stop` also sets `_stopping`, which is read next.
        self._wake.clear()
        while not self._stopping.is_set():
            try:
                with closing(ShardConnection(self._connect(self._shard), self._wake.fileno())) as connection:
                    connection.execute(ReadClaim(keys.shard_key(self._config.namespace, self._shard, "clock")))
            except (RedisError, OSError, TickwheelError, *BROKEN_ANSWER) as error:
                _log.debug("shard %d: still unreachable: %s", self._shard, error)
                self._wake.wait(1000 * backoff.next())
            else:
                _log.warning("shard %d: reachable again; waiting to be elected", self._shard)
                return
