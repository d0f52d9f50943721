"""The nodes of an election on ZooKeeper that are there for good: made by who comes first, and known again later.

Who has entered never makes them again. New ones would start with epochs that the shards have left behind.
"""

from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import ZnodeStat

from tickwheel.event_process.ensemble import Ensemble


class Root:
    """One election's nodes, as one member knows them. Used by one thread."""

    def __init__(self, ensemble: Ensemble, path: str, shards: int) -> None:
        self.path = path
        self.members = f"{path}/members"
        self.assignment = f"{path}/assignment"
        self.shards = f"{path}/shards"
        self._ensemble = ensemble
        self._client = ensemble.client
        self._nodes = [self.members, self.assignment, *(self.shard(number) for number in range(shards))]
        self._born: tuple[int, int] | None = None

    @property
    def was_entered(self) -> bool:
        """Whether this member knows them from before."""
        return self._born is not None

    def shard(self, number: int) -> str:
        """The node whose version is the shard's epoch, and whose children are its candidates."""
        return f"{self.shards}/{number}"

    def enter(self) -> None:
        """Make what is not there. Raises NoNodeError where the nodes that were entered before are gone, even where
        others have been made since.
        """
        if not self.was_entered:
            for nodes in ([self.shards], self._nodes):
                made = self._ensemble.answers([self._client.ensure_path_async(node) for node in nodes])
                for node, each in zip(nodes, made, strict=True):
                    self._ensemble.accepted(each, node)
        stat: ZnodeStat
        _, stat = self._ensemble.answer(self._client.get_async(self.path), self.path)
        born = stat.czxid, stat.ctime
        if self._born not in (None, born):
            raise NoNodeError(self.path)
        self._born = born
