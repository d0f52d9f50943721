"""The nodes of an election on ZooKeeper that are there for good: made by who comes first, and known again later.

The root's data is the id of the namespace whose election it is: two servers of Redis may have namespaces of one name.
Who has entered never makes the nodes again: new ones would start with epochs that the shards have left behind.
"""

from kazoo.exceptions import NoNodeError, NotEmptyError
from kazoo.protocol.states import ZnodeStat

from tickwheel.election.zookeeper_session import ZooKeeperSession
from tickwheel.errors import TickwheelError


class ElectionNodes:
    """One election's nodes, as one member knows them. Used by one thread."""

    def __init__(self, session: ZooKeeperSession, path: str, shards: int, identity: bytes) -> None:
        """``identity`` is the namespace's id."""
        self.path = path
        self.members = f"{path}/members"
        self.assignment = f"{path}/assignment"
        self.shards = f"{path}/shards"
        self._session = session
        self._client = session.client
        self._nodes = [self.members, self.assignment, *(self.shard(number) for number in range(shards))]
        self._identity = identity
        self._version = 0
        self._creation: tuple[int, int] | None = None

    @property
    def is_established(self) -> bool:
        """Whether this member knows them from before."""
        return self._creation is not None

    def shard(self, number: int) -> str:
        """The node whose version is the shard's epoch, and whose children are its candidates."""
        return f"{self.shards}/{number}"

    def ensure_created(self) -> None:
        """Make what is not there. Raises NoNodeError where the nodes that were entered before are gone, even where
        others have been made since, TickwheelError where another namespace of the name is at work under them.
        """
        if not self.is_established:
            for nodes in ([self.shards], self._nodes):
                results = self._session.await_all([self._client.ensure_path_async(node) for node in nodes])
                for node, result in zip(nodes, results, strict=True):
                    self._session.result_or_raise(result, node)
        stored_identity: bytes
        stat: ZnodeStat
        stored_identity, stat = self._session.await_result(self._client.get_async(self.path), self.path)
        creation = stat.czxid, stat.ctime
        if self._creation not in (None, creation):
            raise NoNodeError(self.path)
        self._version = (
            stat.version if stored_identity == self._identity else self._claim_root(stored_identity, stat.version)
        )
        self._creation = creation

    def register_member(self, member: str, description: bytes) -> None:
        """Put a member on the list. Raises BadVersionError where the election has become another namespace's."""
        transaction = self._client.transaction()
        transaction.check(self.path, self._version)
        transaction.create(member, description, ephemeral=True)
        self._session.await_result(transaction.commit_async(), member)

    def _claim_root(self, stored_identity: bytes, version: int) -> int:
        """Write the namespace's id over ``found``; the root's version after it."""
        transaction = self._client.transaction()
        transaction.set_data(self.path, self._identity, version=version)
        # Where there is none yet, the members are of a version that wrote none.
        if stored_identity:
            # Invariant: it is taken from nobody who is at work. A list with members on it cannot be removed.
            transaction.delete(self.members)
            transaction.create(self.members)
        try:
            self._session.await_result(transaction.commit_async(), self.path)
        except NotEmptyError as error:
            raise TickwheelError(
                f"ZooKeeper's node {self.path} is the election of another namespace of this name, on another server,"
                " and its event processes are at work: give each its own path, as in --election zk://host/path. Where"
                " this namespace was made anew, end the event processes of the one before, and start this one again"
            ) from error
        return version + 1
