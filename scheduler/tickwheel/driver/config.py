"""The settings of one shard's drivers. After a reconnect, a process creates a new driver with the same settings."""

from dataclasses import dataclass, field

from tickwheel.driver.fenced_shard import FencedShard
from tickwheel.driver.queue_lookup import QueueLookup
from tickwheel.driver.stats import WheelStats


@dataclass(frozen=True, slots=True)
class DriverConfig:
    """The settings of one shard's drivers.

    ``election`` is the kind of election, which the shard stores. ``owner`` is the readable name of the process.
    ``clock_fragment`` is the Lua fragment with which scripts read the time; only tests change it.
    """

    namespace: str
    shard: int
    queues: QueueLookup
    election: str
    owner: str = ""
    clock_fragment: str = "_clock"
    stats: WheelStats = field(default_factory=WheelStats)

    def make_fenced_shard(self) -> FencedShard:
        """Return the shard, still without a fence."""
        return FencedShard(self.namespace, self.shard, self.clock_fragment)
