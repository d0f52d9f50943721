"""The state of one shard in an election on ZooKeeper.

The loop of a shard is the thread that waits for the leadership, and then drives the shard.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue

from tickwheel.election.claims import EpochClaims
from tickwheel.election.election import OnFenced, UnwatchedLeadership


class ZooKeeperLeadership(UnwatchedLeadership):
    """The leadership of a shard. It is lost when the session ends, or when the assigned member can take over."""

    on_fenced = OnFenced.COMPARE

    def __init__(self, epoch: int, candidate: str, on_loss: Callable[[], None], release: Callable[[], None]) -> None:
        self.epoch = epoch
        self.candidate = candidate
        self.on_loss = on_loss
        self.release = release
        self.lost = False
        self.claims = EpochClaims(epoch)

    def lose(self) -> None:
        """Mark the leadership as lost, and notify the leader's loop."""
        if not self.lost:
            self.lost = True
            self.on_loss()


@dataclass(slots=True)
class ShardElectionState:
    """The state of the shard's loop in this process.

    ``wanted``: the loop waits in `acquire`. ``leadership``: the leadership that the loop holds, if any. ``wins`` passes
    the leadership to the waiting loop; None ends the wait without a leadership.
    """

    wanted: bool = False
    on_loss: Callable[[], None] = lambda: None
    leadership: ZooKeeperLeadership | None = None
    wins: SimpleQueue[ZooKeeperLeadership | None] = field(default_factory=SimpleQueue)
