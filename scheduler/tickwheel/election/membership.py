"""Who is a member of an election on ZooKeeper, what each cannot reach, and so which shard is whose.

A member is an ephemeral node. The assignment is one node, written by whoever sees first that it is out of date, and
only over the version that was looked at. There is no member whose absence could stop it.
"""

import json
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any

from kazoo.exceptions import BadVersionError
from kazoo.exceptions import ZookeeperError as ZooKeeperError
from kazoo.protocol.states import WatchedEvent, ZnodeStat

from tickwheel.election.assignment import Assignment, assign, pack, unpack
from tickwheel.election.znodes import Root
from tickwheel.election.zookeeper_session import Ensemble


@dataclass(frozen=True, slots=True)
class Called:
    """``members`` says of each which shards it avoids; the assignment is as ZooKeeper has it."""

    members: dict[str, frozenset[int]]
    assignment: Assignment


class Roll:
    """The members' list as one of them sees and keeps it. Used by one thread."""

    def __init__(
        self,
        ensemble: Ensemble,
        root: Root,
        member: str,
        name: str,
        shards: int,
        on_event: Callable[[WatchedEvent], None],
    ) -> None:
        """``name`` is for people; ``on_event`` is told, in another thread, when it should be called again."""
        self._ensemble = ensemble
        self._client = ensemble.client
        self._root = root
        self._member = member
        self._name = name
        self._shards = shards
        self._on_event = on_event

    def call(self, avoids: Set[int], *, leaving: bool) -> Called:
        """Be on the list, or off it where ``leaving``, and keep the assignment up to date."""
        ensemble, client, root = self._ensemble, self._client, self._root
        own = f"{root.members}/{self._member}"
        described = json.dumps({"name": self._name, "avoids": sorted(avoids)}).encode()
        if leaving:
            ensemble.answers([client.delete_async(own)])
        names = ensemble.answer(client.get_children_async(root.members, watch=self._on_event), root.members)
        if not leaving and self._member not in names:
            root.join(own, described)
            names.append(self._member)
        nodes = [root.assignment, *(f"{root.members}/{name}" for name in names)]
        [current, *found] = ensemble.answers([client.get_async(node, watch=self._on_event) for node in nodes])
        ensemble.accepted(current, root.assignment)
        members = {name: _avoided(each[0]) for name, each in zip(names, found, strict=True) if not _has_gone(each)}
        if members.get(self._member, avoids) != avoids:
            ensemble.answer(client.set_async(own, described), own)
            members[self._member] = frozenset(avoids)
        return Called(members, self._assigned(members, *current))

    def _assigned(self, members: dict[str, frozenset[int]], stored: bytes, stat: ZnodeStat) -> Assignment:
        now = unpack(stored)
        following = assign(members, self._shards, now)
        if members and following != now:
            node = self._root.assignment
            asked = self._client.set_async(node, pack(following), version=stat.version)
            try:
                self._ensemble.answer(asked, node)
            except BadVersionError:
                # Another was faster: the event of its assignment comes.
                pass
            else:
                return following
        return [*now, *[None] * self._shards][: self._shards]


def _has_gone(found: Any) -> bool:
    return isinstance(found, ZooKeeperError)


def _avoided(described: bytes) -> frozenset[int]:
    """What a member avoids, by its node; nothing where another version wrote what is not understood."""
    try:
        return frozenset(json.loads(described)["avoids"])
    except (ValueError, LookupError, TypeError):
        return frozenset()
