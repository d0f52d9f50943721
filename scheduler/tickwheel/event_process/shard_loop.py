"""Drives one shard for as long as the election lets it: the driver's commands go over a link, its replies come back."""

import logging
import os
import random
from collections.abc import Callable
from threading import Event
from typing import Final

from redis import Redis
from redis.exceptions import RedisError

from tickwheel.errors import Fenced, TickwheelError
from tickwheel.event_process.commands import Refused, Steps
from tickwheel.event_process.driver import ShardDriver
from tickwheel.event_process.election import Election, Leadership
from tickwheel.event_process.link import Link
from tickwheel.event_process.queues import HomeChanged, Queues
from tickwheel.event_process.server_clock import ServerClock, monotonic_ms
from tickwheel.event_process.stats import WheelStats

# Waits between attempts to reach the server, doubling from the first to the last, with jitter.
BACKOFF_SECONDS: Final = (0.05, 2.0)
# Connection numbers of a process start at a random multiple of 2**32, below 2**53 in all: two processes that take the
# same epoch by a mistake of operation (lock files of two hosts) are told apart, and one of them is fenced.
_FIRST_NUMBERS: Final = 2**21

Connect = Callable[[int], "Redis"]

_log = logging.getLogger("tickwheel.event_process")


class ShardLoop:
    """One shard's loop. ``run`` in a thread of its own, ``stop`` from any."""

    def __init__(
        self,
        connect: Connect,
        namespace: str,
        shard: int,
        *,
        queues: Queues,
        election: Election,
        clock: ServerClock,
        clock_fragment: str = "_clock",
    ) -> None:
        """``connect`` makes a client of the server that holds the shard; its socket time-out bounds a call."""
        self.stats = WheelStats()
        self.clock = clock
        self.error: BaseException | None = None
        self._connect = connect
        self._namespace = namespace
        self._shard = shard
        self._queues = queues
        self._election = election
        self._clock_fragment = clock_fragment
        self._stopping = Event()
        self._woken, self._wake = os.pipe()
        self._number = random.SystemRandom().randrange(_FIRST_NUMBERS) << 32

    def run(self) -> None:
        """Stand for election, drive while leading, until stopped. Raises Fenced where somebody newer drives."""
        try:
            while not self._stopping.is_set():
                leadership = self._election.acquire(self._shard, self._stopping)
                if leadership is None:
                    break
                _log.info("shard %d: elected", self._shard)
                try:
                    self._lead(leadership)
                finally:
                    self.stats.epoch = 0
                    leadership.release()
        except BaseException as error:
            self.error = error
            raise

    def stop(self) -> None:
        """Ask `run` to return; what is under way is finished. May be called at any time, and again."""
        if not self._stopping.is_set():
            self._stopping.set()
            os.write(self._wake, b"\0")

    def close(self) -> None:
        """Free what is left. Only after `run` has returned."""
        os.close(self._woken)
        os.close(self._wake)

    def _lead(self, leadership: Leadership) -> None:
        epoch = leadership.epoch
        shortest, longest = BACKOFF_SECONDS
        wait = shortest
        while not (self._stopping.is_set() or leadership.lost):
            self._number += 1
            driver = ShardDriver(
                self._namespace,
                self._shard,
                epoch=epoch,
                connection=self._number,
                election=self._election.kind,
                queues=self._queues,
                clock=self.clock,
                stats=self.stats,
                clock_fragment=self._clock_fragment,
            )
            try:
                link = Link(self._connect(self._shard), self._woken)
                try:
                    self._drive(driver.run(), link, leadership)
                finally:
                    link.close()
            except (RedisError, OSError, TickwheelError) as error:
                if driver.refused or isinstance(error, HomeChanged):
                    raise
                if driver.claimed:
                    wait = shortest
                # A fence that changed under a leader: its claim decides whether somebody newer drives.
                how = "fenced" if isinstance(error, Fenced) else "lost"
                _log.warning("shard %d: %s, again in %.2f s: %s", self._shard, how, wait, error)
                self._stopping.wait(wait * random.uniform(0.5, 1))
                wait = min(2 * wait, longest)
            epoch = driver.epoch

    def _drive(self, steps: Steps, link: Link, leadership: Leadership) -> None:
        command = next(steps)
        while not (self._stopping.is_set() or leadership.lost):
            sent = monotonic_ms()
            try:
                reply = link.execute(command)
            except Refused as refusal:
                command = steps.throw(refusal)
                continue
            self.clock.around(sent, monotonic_ms())
            command = steps.send(reply)
            self.stats.held, self.stats.clock_steps = self.clock.guard.held, self.clock.guard.steps
