"""What the drivers of one shard have in common, from one fence to the next."""

from dataclasses import dataclass, field

from tickwheel.driver.fenced_shard import FencedShard
from tickwheel.driver.queue_lookup import QueueLookup
from tickwheel.driver.stats import WheelStats


@dataclass(frozen=True, slots=True)
class DriverConfig:
    """``election`` is the kind of election, which the shard keeps; ``owner`` is the name of the process for people.

    ``clock_fragment`` is how scripts read the time: another fragment than the default in tests only.
    """

    namespace: str
    shard: int
    queues: QueueLookup
    election: str
    owner: str = ""
    clock_fragment: str = "_clock"
    stats: WheelStats = field(default_factory=WheelStats)

    def make_fenced_shard(self) -> FencedShard:
        """Return the shard without a fence yet."""
        return FencedShard(self.namespace, self.shard, self.clock_fragment)
