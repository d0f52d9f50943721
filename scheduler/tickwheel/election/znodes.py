"""The permanent nodes of an election on ZooKeeper. The first member creates them, and each member checks them.

The root, which is the parent of all other nodes, stores the id of the election's namespace, because two Redis servers
may have namespaces of the same name. A member that has used the nodes never creates them again: the epochs of new nodes
would be lower than the epochs that the shards in Redis have.
"""

from kazoo.exceptions import NoNodeError, NotEmptyError
from kazoo.protocol.states import ZnodeStat

from tickwheel.election.zookeeper_session import ZooKeeperSession
from tickwheel.errors import TickwheelError


class ElectionNodes:
    """The permanent nodes of one election, as one member found them. Used by one thread."""

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
        """Whether this member has found or created the nodes before."""
        return self._creation is not None

    def shard(self, number: int) -> str:
        """Return the path of a shard's node: its version is the shard's epoch, and its children are the candidates."""
        return f"{self.shards}/{number}"

    def ensure_created(self) -> None:
        """Create missing nodes.

        Raises NoNodeError if the nodes that this member used before are gone, even if they were created again.
        Raises TickwheelError if event processes of another namespace of the same name use the nodes.
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
        """Add a member to the list. Raises BadVersionError if another namespace has claimed the election."""
        transaction = self._client.transaction()
        transaction.check(self.path, self._version)
        transaction.create(member, description, ephemeral=True)
        self._session.await_result(transaction.commit_async(), member)

    def _claim_root(self, stored_identity: bytes, version: int) -> int:
        """Replace ``stored_identity`` by the namespace's id. Return the root's new version."""
        transaction = self._client.transaction()
        transaction.set_data(self.path, self._identity, version=version)
        # If no id is stored, the root is new, or its members run an older version, which did not store an id.
        if stored_identity:
            # Invariant: an election with running members is never claimed. ZooKeeper rejects the deletion of the node
            # `members` while the node has children.
            transaction.delete(self.members)
            transaction.create(self.members)
        try:
            self._session.await_result(transaction.commit_async(), self.path)
        except NotEmptyError as error:
            raise TickwheelError(
                f"event processes of another namespace with the same name, on another Redis server, use ZooKeeper's"
                f" node {self.path}: give each namespace its own path, as in --election zk://host/path. If this"
                " namespace was recreated, stop the event processes of the old namespace, and start this process again"
            ) from error
        return version + 1
