"""A client and the drivers of the wheels on one server whose time this program turns.

Retention is never below five minutes, so whole lives are measured on the scripts' test clock: one HGET of a field where
the production scripts ask the server for its TIME. `clock_cost_us` measures the difference.
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
from tickwheel.event_process.queue_directory import QueueDirectory
from tickwheel.runtime.time import monotonic_ms
from tickwheel.storage.keys import shard_key
from tickwheel.testing.driver_clock import ManualClock

START_MS = 1_700_000_000_000
# Two rotations of the buckets in which new timers wait to be filed.
FILED_MS = 1_000
# What is on its way from the inbox is here by then, in real time.
NEWS_MS = 30


class ManualTimeShard:
    """One shard, or several, under a turned clock. ``history`` is how many entries of events each keeps."""

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
        queues = QueueDirectory(core, self.tickwheel._io)
        self._drivers = [self._drive(shard, queues) for shard in range(shards)]

    @property
    def fired_timers(self) -> int:
        """How many timers have fired on all shards."""
        return sum(driver._stats.fired_timers for driver, _ in self._drivers)

    def key(self, name: str) -> str:
        """One of the first shard's keys."""
        return shard_key(self.tickwheel._context.namespace, 0, name)

    def turn(self, ms: int = 0) -> bool:
        """Time passes, then every duty of the event processes has its turn; whether any had something to do."""
        if ms:
            self.clock.now_ms += ms
            self._set_clock()
        busy = [run_steps(driver.turn(), self._executor(link)) for driver, link in self._drivers]
        return any(busy)

    def settle(self, ms: int = 0) -> None:
        """Time passes, then the event process works until it has nothing to do."""
        busy = self.turn(ms)
        while busy:
            busy = self.turn()

    def file(self) -> None:
        """Let what is in the inbox be filed."""
        self._waits = True
        for _ in range(3):
            self.settle(FILED_MS)
        self._waits = False

    def advance_to(self, time_ms: int) -> None:
        """Let time pass until then, as it passes for an event process: a slot of the wheel's level 2 at a time."""
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
        """Turn the scripts' clock. What that costs the server is not the product's, so it is kept apart."""
        before = self.server.process_cpu_us()
        with self.server.redis.pipeline(transaction=False) as pipe:
            for key in self._clock_keys:
                pipe.hset(key, "now", self.clock.now_ms)
            pipe.execute()
        self.set_clock_us += self.server.process_cpu_us() - before

    def _drive(self, shard: int, queues: QueueDirectory) -> tuple[ShardDriver, ShardConnection]:
        """A driver of the shard that has taken its wheel over, and its link."""
        namespace = self.tickwheel._context.namespace
        config = DriverConfig(namespace, shard, queues, "bench", clock_fragment="_clock_test")
        driver = ShardDriver(config, self.clock, epoch=None, connection=1)
        link = ShardConnection(Redis.from_url(self.server.url, protocol=2), self._wake_read_fd)
        run_steps(driver.claim(), link.execute)
        run_steps(driver.take_over(), link.execute)
        return driver, link

    def _executor(self, link: ShardConnection) -> Execute:
        """Return what executes a shard's commands. The inbox is followed as in production, by a blocking read."""

        def execute(command: Command) -> Any:
            if isinstance(command, ReadStream) and self._waits:
                command = replace(command, until_ms=monotonic_ms() + NEWS_MS)
            return link.execute(command)

        return execute
