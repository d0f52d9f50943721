"""One shard in an election on ZooKeeper: what its loop wants, and the leadership that it has."""

from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue


class ZooKeeperLeadership:
    """A shard that was won. Lost when the session ends, or when another is to have the shard and is ready."""

    def __init__(self, epoch: int, candidate: str, on_loss: Callable[[], None], on_release: Callable[[], None]) -> None:
        self.epoch = epoch
        self.candidate = candidate
        self.lost = False
        self._on_loss = on_loss
        self._on_release = on_release

    def lose(self) -> None:
        """Tell who drives."""
        if not self.lost:
            self.lost = True
            self._on_loss()

    def release(self) -> None:
        self._on_release()


@dataclass(slots=True)
class ShardElectionState:
    """What one shard's loop wants and has."""

    wanted: bool = False
    on_loss: Callable[[], None] = lambda: None
    leadership: ZooKeeperLeadership | None = None
    wins: SimpleQueue[ZooKeeperLeadership | None] = field(default_factory=SimpleQueue)
