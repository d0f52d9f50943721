"""A client and the driver of the wheel on one server whose time this program turns.

Retention is never below five minutes, so whole lives are measured on the scripts' test clock: one HGET of a field where
the production scripts ask the server for its TIME. `clock_cost_us` measures the difference.
"""

import os
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from redis import Redis

from bench.server import BenchServer
from tickwheel import Tickwheel
from tickwheel.driving import HomeQueues
from tickwheel.event_process.clock import TurnedClock
from tickwheel.event_process.commands import ReadInbox, Refused
from tickwheel.event_process.driver import ShardDriver
from tickwheel.event_process.link import Link
from tickwheel.event_process.server_clock import monotonic_ms
from tickwheel.event_process.stats import WheelStats
from tickwheel.keys import shard_key

START_MS = 1_700_000_000_000
# Two rotations of the buckets in which new timers wait to be filed.
FILED_MS = 1_000
# What is on its way from the inbox is here by then, in real time.
NEWS_MS = 30


class TurnedShard:
    """One shard under a turned clock. ``history`` is how many entries of events it keeps."""

    def __init__(self, server: BenchServer, *, history: int) -> None:
        self.server = server
        self.tickwheel = Tickwheel(server.url, clock="_clock_test", drive=False)
        core = self.tickwheel._core
        core.history = history
        self._clock_key = shard_key(core.namespace, 0, "clock")
        self.clock = TurnedClock(START_MS)
        self.turning_us = 0.0
        self._waits = False
        self._set_clock()
        self._woken, self._wake = os.pipe()
        self._link = Link(Redis.from_url(server.url, protocol=2), self._woken)
        self.driver = ShardDriver(
            core.namespace,
            0,
            epoch=None,
            connection=1,
            election="bench",
            queues=HomeQueues(core, self.tickwheel._io),
            clock=self.clock,
            stats=WheelStats(),
            clock_fragment="_clock_test",
        )
        self._play(self.driver.claim())
        self._play(self.driver.take_over())

    def key(self, name: str) -> str:
        """One of the shard's keys."""
        return shard_key(self.tickwheel._core.namespace, 0, name)

    def turn(self, ms: int = 0) -> bool:
        """Time passes, then every duty of the event process has its turn; whether any had something to do."""
        if ms:
            self.clock.now_ms += ms
            self._set_clock()
        return bool(self._play(self.driver.turn()))

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

    def pass_to(self, time_ms: int) -> None:
        """Let time pass until then, as it passes for an event process: a slot of the wheel's level 2 at a time."""
        while self.clock.now_ms < time_ms:
            self.settle(min(4_096, time_ms - self.clock.now_ms))

    def close(self) -> None:
        self._link.close()
        os.close(self._woken)
        os.close(self._wake)
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
        self.server.redis.hset(self._clock_key, "now", self.clock.now_ms)
        self.turning_us += self.server.process_cpu_us() - before

    def _play(self, steps: Any) -> Any:
        """Carry a part of the driver out. The inbox is followed as in production, by a read always under way."""
        try:
            command = next(steps)
            while True:
                try:
                    if isinstance(command, ReadInbox) and self._waits:
                        command = replace(command, until_ms=monotonic_ms() + NEWS_MS)
                    reply = self._link.execute(command)
                except Refused as refusal:
                    command = steps.throw(refusal)
                    continue
                command = steps.send(reply)
        except StopIteration as done:
            return done.value
