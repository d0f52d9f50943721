"""An event process that is killed during its work."""

from typing import Any

from tickwheel.driver.commands import Command
from tickwheel.event_process.queue_directory import QueueDirectory
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.namespace import open_namespace
from tickwheel.operations.namespace_options import NamespaceOptions
from tickwheel.redis.driver_executor import DriverExecutor
from tickwheel.redis.pools import ConnectionPools
from tickwheel.storage.keys import shard_key
from tickwheel.testing import PrivateServer
from tickwheel.testing.driver_clock import ManualClock
from tickwheel.testing.manual_wheel import ManualWheel
from tickwheel.testing.virtual_clock import FRAGMENT


class Killed(Exception):
    """The process was killed."""


class CrashingWheel(ManualWheel):
    """Takes a shard over, and is killed after some commands or when all due work is done."""

    def __init__(self, server: PrivateServer, namespace: str, shard: int, now_ms: int) -> None:
        core = NamespaceContext(namespace, clock=FRAGMENT)
        self._io = DriverExecutor(ConnectionPools(server.url), server.url, 10)
        self._io.run(open_namespace(core, NamespaceOptions()))
        self._left = 0
        clock = shard_key(namespace, shard, "clock")
        manual_clock = ManualClock(now_ms)
        queues = QueueDirectory(core, self._io, clock=manual_clock.monotonic)
        super().__init__(lambda n: self._io.connect(n, clock), namespace, shard, queues, manual_clock)

    def die_after(self, commands: int) -> None:
        self._left = commands
        try:
            self.run_due()
        except Killed:
            pass
        finally:
            self.reset()
            self._io.close()

    def _execute(self, command: Command) -> Any:
        if self._left == 0:
            raise Killed
        self._left -= 1
        return super()._execute(command)
