"""The nodes of an election on ZooKeeper that are there for good: made by who comes first, and known again later.

The root's data is the id of the namespace whose election it is: two servers of Redis may have namespaces of one name.
Who has entered never makes the nodes again: new ones would start with epochs that the shards have left behind.
"""

from kazoo.exceptions import NoNodeError, NotEmptyError
from kazoo.protocol.states import ZnodeStat

from tickwheel.election.zookeeper_session import Ensemble
from tickwheel.errors import TickwheelError


class Root:
    """One election's nodes, as one member knows them. Used by one thread."""

    def __init__(self, ensemble: Ensemble, path: str, shards: int, identity: bytes) -> None:
        """``identity`` is the namespace's id."""
        self.path = path
        self.members = f"{path}/members"
        self.assignment = f"{path}/assignment"
        self.shards = f"{path}/shards"
        self._ensemble = ensemble
        self._client = ensemble.client
        self._nodes = [self.members, self.assignment, *(self.shard(number) for number in range(shards))]
        self._identity = identity
        self._version = 0
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
        others have been made since, TickwheelError where another namespace of the name is at work under them.
        """
        if not self.was_entered:
            for nodes in ([self.shards], self._nodes):
                made = self._ensemble.answers([self._client.ensure_path_async(node) for node in nodes])
                for node, each in zip(nodes, made, strict=True):
                    self._ensemble.accepted(each, node)
        found: bytes
        stat: ZnodeStat
        found, stat = self._ensemble.answer(self._client.get_async(self.path), self.path)
        born = stat.czxid, stat.ctime
        if self._born not in (None, born):
            raise NoNodeError(self.path)
        self._version = stat.version if found == self._identity else self._take(found, stat.version)
        self._born = born

    def join(self, member: str, described: bytes) -> None:
        """Put a member on the list. Raises BadVersionError where the election has become another namespace's."""
        joining = self._client.transaction()
        joining.check(self.path, self._version)
        joining.create(member, described, ephemeral=True)
        self._ensemble.answer(joining.commit_async(), member)

    def _take(self, found: bytes, version: int) -> int:
        """Write the namespace's id over ``found``; the root's version after it."""
        taking = self._client.transaction()
        taking.set_data(self.path, self._identity, version=version)
        # Where there is none yet, the members are of a version that wrote none.
        if found:
            # Invariant: it is taken from nobody who is at work. A list with members on it cannot be removed.
            taking.delete(self.members)
            taking.create(self.members)
        try:
            self._ensemble.answer(taking.commit_async(), self.path)
        except NotEmptyError as error:
            raise TickwheelError(
                f"ZooKeeper's node {self.path} is the election of another namespace of this name, on another server,"
                " and its event processes are at work: give each its own path, as in --election zk://host/path. Where"
                " this namespace was made anew, end the event processes of the one before, and start this one again"
            ) from error
        return version + 1
