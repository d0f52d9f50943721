"""A client and the drivers of one server, with a clock that this program sets.

The retention of a message is at least five minutes, so whole lives are measured with a test clock. The scripts then
read the time from a hash field (HGET), not by TIME. `clock_cost_us` in `message_life` measures the difference in cost.
"""

import os
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from redis import Redis

from bench.harness.bench_server import BenchServer
from tickwheel import Tickwheel
from tickwheel.driver.commands import Command, ReadStream
from tickwheel.driver.config import DriverConfig
from tickwheel.driver.run_steps import Execute, run_steps
from tickwheel.driver.shard_connection import ShardConnection
from tickwheel.driver.shard_driver import ShardDriver
from tickwheel.election.claims import EpochClaims
from tickwheel.event_process.queue_directory import QueueDirectory
from tickwheel.runtime.time import monotonic_ms
from tickwheel.storage.keys import shard_key
from tickwheel.testing.driver_clock import ManualClock

START_MS = 1_700_000_000_000
# New timers pass through two buckets before they are filed (`driver/inbox_buffer.py`). The buckets rotate once in this
# time.
FILED_MS = 1_000
# The real time for which a driver waits for new entries of the inbox.
NEWS_MS = 30


class ManualTimeShard:
    """One shard or several with a manual clock. Each shard keeps ``history`` entries of events."""

    def __init__(self, server: BenchServer, *, history: int, shards: int = 1) -> None:
        self.server = server
        self.shards = shards
        self.tickwheel = Tickwheel(server.url, clock="_clock_test", drive=False, shards=shards)
        core = self.tickwheel._context
        core.history = history
        self._clock_keys = [shard_key(core.namespace, shard, "clock") for shard in range(shards)]
        self.clock = ManualClock(START_MS)
        self.set_clock_us = 0.0
        self._waits = False
        self._set_clock()
        self._wake_read_fd, self._wake_write_fd = os.pipe()
        queues = QueueDirectory(core, self.tickwheel._io, clock=self.clock.monotonic)
        self._drivers = [self._drive(shard, queues) for shard in range(shards)]

    @property
    def fired_timers(self) -> int:
        """The number of timers that have fired on all shards."""
        return sum(driver._stats.fired_timers for driver, _ in self._drivers)

    def key(self, name: str) -> str:
        """Return the name of a key of the first shard."""
        return shard_key(self.tickwheel._context.namespace, 0, name)

    def turn(self, ms: int = 0) -> bool:
        """Advance the clock, let every driver take one turn, and return whether any driver had work."""
        if ms:
            self.clock.now_ms += ms
            self._set_clock()
        busy = [run_steps(driver.turn(), self._executor(link)) for driver, link in self._drivers]
        return any(busy)

    def settle(self, ms: int = 0) -> None:
        """Advance the clock, and let the drivers run until none of them has work."""
        busy = self.turn(ms)
        while busy:
            busy = self.turn()

    def file(self) -> None:
        """File all timers of the inbox."""
        self._waits = True
        for _ in range(3):
            self.settle(FILED_MS)
        self._waits = False

    def advance_to(self, time_ms: int) -> None:
        """Advance the clock to ``time_ms`` in steps of at most 4,096 ms, the length of a slot of level 2."""
        while self.clock.now_ms < time_ms:
            self.settle(min(4_096, time_ms - self.clock.now_ms))

    def close(self) -> None:
        for _, link in self._drivers:
            link.close()
        os.close(self._wake_read_fd)
        os.close(self._wake_write_fd)
        self.tickwheel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _set_clock(self) -> None:
        """Set the clock of the scripts. The cost of this call is subtracted, because production does not make it."""
        before = self.server.process_cpu_us()
        with self.server.redis.pipeline(transaction=False) as pipe:
            for key in self._clock_keys:
                pipe.hset(key, "now", self.clock.now_ms)
            pipe.execute()
        self.set_clock_us += self.server.process_cpu_us() - before

    def _drive(self, shard: int, queues: QueueDirectory) -> tuple[ShardDriver, ShardConnection]:
        """Return a driver that has taken over the shard's wheel, and its connection."""
        namespace = self.tickwheel._context.namespace
        config = DriverConfig(namespace, shard, queues, "bench", clock_fragment="_clock_test")
        driver = ShardDriver(config, self.clock, EpochClaims(None, first_number=1))
        link = ShardConnection(Redis.from_url(self.server.url, protocol=2), self._wake_read_fd)
        run_steps(driver.claim(), link.execute)
        run_steps(driver.take_over(), link.execute)
        return driver, link

    def _executor(self, link: ShardConnection) -> Execute:
        """Return the function that executes a shard's commands. In `file`, it waits for news of the inbox."""

        def execute(command: Command) -> Any:
            if isinstance(command, ReadStream) and self._waits:
                command = replace(command, until_ms=monotonic_ms() + NEWS_MS)
            return link.execute(command)

        return execute
