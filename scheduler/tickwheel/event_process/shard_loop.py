"""Drives one shard for as long as the election lets it: the driver's commands go over a link, its replies come back."""

import logging
import random
from collections.abc import Callable, Sequence
from threading import Event
from typing import Any, Final

from redis import Redis
from redis.exceptions import RedisError

from tickwheel.driver.commands import Command, ReadFence
from tickwheel.driver.config import DriverConfig
from tickwheel.driver.queue_lookup import NamespaceRecreated
from tickwheel.driver.run_steps import next_command
from tickwheel.driver.server_clock import ServerClock
from tickwheel.driver.shard_connection import ShardConnection
from tickwheel.driver.shard_driver import ShardDriver
from tickwheel.election.election import Election, Leadership
from tickwheel.errors import Fenced, TickwheelError
from tickwheel.event_process.sidecar import Sidecar, StartSidecar
from tickwheel.runtime.backoff import Backoff
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.runtime.time import monotonic_ms
from tickwheel.runtime.wake_pipe import WakePipe
from tickwheel.storage import keys
from tickwheel.storage.fence import client_name, pack_fence

# Who cannot reach a shard for so long resigns, where another can.
RESIGN_AFTER_MS: Final = 3_000
# Connection numbers of a process start at a random multiple of 2**32, below 2**53 in all: two processes that take the
# same epoch by a mistake of operation (lock files of two hosts) are told apart, and one of them is fenced.
_FIRST_NUMBERS: Final = 2**21

Connect = Callable[[int], "Redis"]

_log = logging.getLogger("tickwheel.event_process")
# Of all shards together.
_log_throttle = LogThrottle()


class ShardLoop:
    """One shard's loop. ``run`` in a thread of its own, ``stop`` from any."""

    def __init__(
        self,
        connect: Connect,
        config: DriverConfig,
        clock: ServerClock,
        election: Election,
        sidecars: Sequence[StartSidecar] = (),
    ) -> None:
        """``connect`` makes a client of the server that holds the shard; its socket time-out bounds a call.

        ``sidecars`` are started for each fence once it is claimed, and stopped with it.
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
        # The highest epoch that refused a claim.
        self._fenced_by_epoch = 0
        # The epoch that was told to be outdated.
        self._outdated_epoch = 0
        self._number = random.SystemRandom().randrange(_FIRST_NUMBERS) << 32

    def run(self) -> None:
        """Stand for election, drive while leading, until stopped.

        Raises Fenced where somebody newer drives and this kind of election does not say who is to.
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
                    self.stats.epoch = 0
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
        """Ask `run` to return; what is under way is finished. May be called at any time, and again."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._wake.set()

    def close(self) -> None:
        """Free what is left. Only after `run` has returned."""
        self._wake.close()

    def _lead(self, leadership: Leadership) -> bool:
        """Drive until that ends; whether the shard was resigned from."""
        epoch = leadership.epoch
        backoff = Backoff()
        # From here on it is not known that the shard can be reached.
        unreachable_since = monotonic_ms()
        self._wake.clear()
        while not (self._stopping.is_set() or leadership.lost):
            self._number += 1
            driver = ShardDriver(self._config, self.clock, epoch=epoch, connection=self._number)
            try:
                connection = ShardConnection(
                    self._connect(self._shard), self._wake.fileno(), client_name(self._config.namespace, self._shard)
                )
                try:
                    self._drive(driver, connection, leadership)
                finally:
                    for sidecar in self._sidecars:
                        sidecar.stop()
                    connection.close()
            except (RedisError, OSError, TickwheelError) as error:
                if isinstance(error, NamespaceRecreated):
                    raise
                if driver.claim_refused:
                    if not isinstance(error, Fenced) or leadership.epoch is None:
                        raise
                    if not self._is_outdated(leadership.epoch, error):
                        return False
                if driver.claimed:
                    backoff.reset()
                if driver.claimed or driver.claim_refused:
                    unreachable_since = self._sent
                if monotonic_ms() - unreachable_since >= RESIGN_AFTER_MS and self._election.resign(self._shard):
                    _log.error("shard %d: cannot be reached from here, another is to drive it: %s", self._shard, error)
                    return True
                # A fence that changed under a leader: its claim decides whether somebody newer drives.
                how = "fenced" if isinstance(error, Fenced) else "lost"
                # Of an epoch that the shard has left behind it was told; of a server that is away one shard tells.
                level = logging.DEBUG if driver.claim_refused else _log_throttle.level(f"{how}: {error}")
                seconds = backoff.next()
                _log.log(level, "shard %d: %s, again in %.2f s: %s", self._shard, how, seconds, error)
                self._wake.wait(1000 * seconds)
            epoch = driver.epoch
        return False

    def _drive(self, driver: ShardDriver, connection: ShardConnection, leadership: Leadership) -> None:
        def execute(command: Command) -> Any:
            self._sent = monotonic_ms()
            reply = connection.execute(command)
            self.clock.on_reply(self._sent, monotonic_ms())
            return reply

        steps = driver.run()
        command = next(steps)
        sidecars_started = False
        while not (self._stopping.is_set() or leadership.lost):
            command = next_command(steps, execute, command)
            if driver.claimed and not sidecars_started:
                sidecars_started = True
                self._start_sidecars(driver)
            self.stats.held, self.stats.clock_steps = self.clock.guard.is_holding, self.clock.guard.steps

    def _start_sidecars(self, driver: ShardDriver) -> None:
        # Those of earlier fences are fenced off; one that hangs in a call is not waited for here.
        self._sidecars = [sidecar for sidecar in self._sidecars if sidecar.is_alive]
        shard = self._config.make_fenced_shard()
        assert driver.epoch is not None
        shard.fence = pack_fence(driver.epoch, self._number)
        self._sidecars += [start(shard, self.stats) for start in self._sidecar_starters]

    def _is_outdated(self, epoch: int, fenced: Fenced) -> bool:
        """Whether the election gives epochs that the shard has left behind; otherwise somebody newer drives it."""
        # An epoch that was won after a refusal is above all that this election has ever given.
        if epoch > self._fenced_by_epoch:
            self._fenced_by_epoch = max(self._fenced_by_epoch, fenced.held or 0)
            _log.warning("shard %d: %s; standing for election again", self._shard, fenced)
            return False
        if epoch != self._outdated_epoch:
            self._outdated_epoch = epoch
            _log.error(
                "shard %d: the election gives epoch %d, and the shard has obeyed %d: the election's state was lost, or"
                " another election drives the shard. Where no other does, run `tickwheel shards reset-epoch`",
                *(self._shard, epoch, self._fenced_by_epoch),
            )
        return True

    def _wait_until_reachable(self) -> None:
        backoff = Backoff()
        while not self._stopping.is_set():
            try:
                connection = ShardConnection(self._connect(self._shard), self._wake.fileno())
                try:
                    connection.execute(ReadFence(keys.shard_key(self._config.namespace, self._shard, "clock")))
                finally:
                    connection.close()
            except (RedisError, OSError, TickwheelError) as error:
                _log.debug("shard %d: still cannot be reached: %s", self._shard, error)
                self._wake.wait(1000 * backoff.next())
            else:
                _log.warning("shard %d: can be reached again", self._shard)
                return
