"""The members of an election on ZooKeeper, the shards that each member cannot reach, and the assignment of shards.

A member is an ephemeral node. The assignment is one node. The first member that finds the assignment outdated writes a
new one; the write succeeds only if the node still has the version that the member has read. So no single member is
needed to keep the assignment current.
"""

import json
import logging
from collections.abc import Callable, Set
from dataclasses import dataclass

from kazoo.exceptions import BadVersionError, ZookeeperError as ZooKeeperError
from kazoo.protocol.states import WatchedEvent, ZnodeStat

from tickwheel.election.assignment import UNREADABLE, Assignment, assign, pack, unpack
from tickwheel.election.znodes import ElectionNodes
from tickwheel.election.zookeeper_session import ZooKeeperSession
from tickwheel.runtime.foreign_data import decode_json
from tickwheel.runtime.log_throttle import LogThrottle

_log = logging.getLogger("tickwheel.event_process")
_log_throttle = LogThrottle()


@dataclass(frozen=True, slots=True)
class MembershipView:
    """The members, each with its unreachable shards, and the assignment that ZooKeeper stores."""

    members: dict[str, frozenset[int]]
    assignment: Assignment


class Membership:
    """Reads and updates the list of members on behalf of one member. Used by one thread."""

    def __init__(
        self,
        session: ZooKeeperSession,
        nodes: ElectionNodes,
        member: str,
        name: str,
        shards: int,
        on_event: Callable[[WatchedEvent], None],
    ) -> None:
        """``name`` is the readable name of the member. Another thread calls ``on_event`` when `refresh` is needed."""
        self._session = session
        self._client = session.client
        self._nodes = nodes
        self._member = member
        self._name = name
        self._shards = shards
        self._on_event = on_event
        # Any thread may read the number of times that a node was ignored because no event process writes such a node.
        self.unreadable_nodes = 0

    def refresh(self, unreachable_shards: Set[int], *, leaving: bool) -> MembershipView:
        """Register this member, or remove it if ``leaving``. Update the assignment, and return members and assignment.

        ``unreachable_shards`` are the shards that this member cannot reach.
        """
        session, client, election_nodes = self._session, self._client, self._nodes
        own = f"{election_nodes.members}/{self._member}"
        description = json.dumps({"name": self._name, "avoids": sorted(unreachable_shards)}).encode()
        if leaving:
            session.await_all([client.delete_async(own)])
        names = session.await_result(
            client.get_children_async(election_nodes.members, watch=self._on_event), election_nodes.members
        )
        if not leaving and self._member not in names:
            election_nodes.register_member(own, description)
            names.append(self._member)
        nodes = [election_nodes.assignment, *(f"{election_nodes.members}/{name}" for name in names)]
        [current, *results] = session.await_all([client.get_async(node, watch=self._on_event) for node in nodes])
        session.result_or_raise(current, election_nodes.assignment)
        members = {
            name: self._parse_unreachable_shards(name, result[0])
            for name, result in zip(names, results, strict=True)
            if not isinstance(result, ZooKeeperError) and self.is_of_session(f"{self._nodes.members}/{name}", result[1])
        }
        if members.get(self._member, unreachable_shards) != unreachable_shards:
            session.await_result(client.set_async(own, description), own)
            members[self._member] = frozenset(unreachable_shards)
        return MembershipView(members, self._update_assignment(members, *current))

    def is_of_session(self, node: str, stat: ZnodeStat) -> bool:
        """Return whether a member's session owns the node. Count and log any other node: such a node never ends."""
        if stat.ephemeralOwner:
            return True
        self.unreadable_nodes += 1
        _log.log(
            _log_throttle.level(f"foreign {node}"),
            "ZooKeeper: node %s is ignored, because no event process has created it (it is not ephemeral): delete it",
            node,
        )
        return False

    def _parse_unreachable_shards(self, member: str, description: bytes) -> frozenset[int]:
        """Return a member's unreachable shards from the data of its node.

        The result is empty if the format of the data is unknown: another version of Tickwheel may have written the
        data.
        """
        try:
            shards = decode_json(description)["avoids"]
            if not all(type(shard) is int for shard in shards):
                raise TypeError("avoids is not a list of numbers")
            return frozenset(shards)
        except UNREADABLE as error:
            self._ignore(f"{self._nodes.members}/{member}", description, error)
            return frozenset()

    def _ignore(self, node: str, data: bytes, error: Exception) -> None:
        """Count and log a node whose data cannot be read."""
        self.unreadable_nodes += 1
        _log.log(
            _log_throttle.level(f"unreadable {node}"),
            "ZooKeeper: the data of node %s is ignored, because it cannot be read (%.80r): %.80r",
            *(node, error, data),
        )

    def _update_assignment(self, members: dict[str, frozenset[int]], stored: bytes, stat: ZnodeStat) -> Assignment:
        try:
            current = unpack(stored)
        except UNREADABLE as error:
            # The next write replaces the data.
            self._ignore(self._nodes.assignment, stored, error)
            current = []
        following = assign(members, self._shards, current)
        if members and following != current:
            node = self._nodes.assignment
            request = self._client.set_async(node, pack(following), version=stat.version)
            try:
                self._session.await_result(request, node)
            except BadVersionError:
                # Another member was faster; the event of its write triggers the next `refresh`.
                pass
            else:
                return following
        return [*current, *[None] * self._shards][: self._shards]
