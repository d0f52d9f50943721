"""The wheel of one shard, run step by step: the driver of the event process, without threads and waiting."""

from typing import Any

from tickwheel.driver.commands import Command, ReadStream
from tickwheel.driver.config import DriverConfig
from tickwheel.driver.queue_lookup import QueueLookup
from tickwheel.driver.run_steps import run_steps
from tickwheel.driver.shard_connection import ShardConnection
from tickwheel.driver.shard_driver import ShardDriver
from tickwheel.driver.unknown_queues import QueueRestored
from tickwheel.election.claims import EpochClaims
from tickwheel.errors import Fenced, TickwheelError
from tickwheel.event_process.shard_loop import Connect
from tickwheel.storage.script_errors import FENCED, STALECONFIG, ScriptError
from tickwheel.testing.driver_clock import ManualClock

ELECTION = "testing"
# The driver handles these script errors. Any other script error is a bug and fails the test.
_EXPECTED = (FENCED, STALECONFIG)


class ManualWheel:
    """Drives one shard of a namespace on the test clock. Does nothing between two calls of `run_due`."""

    def __init__(self, connect: Connect, namespace: str, shard: int, queues: QueueLookup, clock: ManualClock) -> None:
        self._connect = connect
        self._config = DriverConfig(namespace, shard, queues, ELECTION, clock_fragment="_clock_test")
        self._clock = clock
        self._link: ShardConnection | None = None
        self._driver: ShardDriver | None = None

    def run_due(self) -> None:
        """Run everything that is due at the time of the clock."""
        try:
            while self._turn():
                pass
        except (Fenced, QueueRestored):
            # Another driver has claimed the shard, for example the driver of a second `VirtualClock` of the namespace.
            # Or the timers of a queue must be loaded again. Claim the shard again.
            self.reset()
            while self._turn():
                pass

    def next_wake(self) -> float:
        """Return the earliest time in ms at which the driver has work, such as a due timer; infinity if it has none.

        Before the shard is claimed, return the time of the clock: the claim is due.
        """
        return self._driver.next_wake() if self._driver is not None else self._clock.now_ms

    def reset(self) -> None:
        """Drop all state, as if the event process had ended. The next call claims the shard again."""
        self._driver = None
        if self._link is not None:
            self._link.close()
            self._link = None

    def _turn(self) -> bool:
        try:
            return run_steps((self._driver or self._take_over()).turn(), self._execute)
        except BaseException:
            self.reset()
            raise

    def _take_over(self) -> ShardDriver:
        self._link = ShardConnection(self._connect(self._config.shard), wake=None)
        driver = ShardDriver(self._config, self._clock, EpochClaims(None, first_number=1))
        run_steps(driver.claim(), self._execute)
        run_steps(driver.take_over(), self._execute)
        self._driver = driver
        return driver

    def _execute(self, command: Command) -> Any:
        assert self._link is not None
        if isinstance(command, ReadStream):
            return self._link.read_stream_now(command)
        try:
            return self._link.execute(command)
        except ScriptError as error:
            if error.code in _EXPECTED:
                raise
            raise TickwheelError(f"shard {self._config.shard}: a script rejected the driver: {error}") from error
