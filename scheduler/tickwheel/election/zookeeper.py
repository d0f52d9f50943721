"""Election on ZooKeeper: members share the shards evenly. The lowest candidate of a shard wins the shard's next epoch.

The namespace's node (`znodes.py`) contains `members/<id>` and `assignment` (`membership.py`), and `shards/<n>`. The
version of `shards/<n>` is the shard's epoch. The children of `shards/<n>` are ephemeral, sequential nodes: the shard's
candidates (`candidacy.py`).

One thread does all the work. In each iteration it reads the nodes that may have changed and takes one step towards the
wanted state. Events only mark the nodes to read. So a missed event causes a delay, at most until the thread next
checks all nodes.
"""

import logging
import threading
import uuid
from collections.abc import Callable, Iterable
from typing import Any, Final

from kazoo.exceptions import NoNodeError, ZookeeperError as ZooKeeperError
from kazoo.protocol.states import KazooState, WatchedEvent

from tickwheel.election import candidacy
from tickwheel.election.assignment import Assignment
from tickwheel.election.election import owner_name
from tickwheel.election.membership import Membership
from tickwheel.election.problem_log import ElectionProblemLog
from tickwheel.election.shard_state import ShardElectionState, ZooKeeperLeadership
from tickwheel.election.znodes import ElectionNodes
from tickwheel.election.zookeeper_session import CLOSE_S, ZooKeeperSession, ZooKeeperUnavailable
from tickwheel.election.zookeeper_url import ZooKeeperUrl
from tickwheel.errors import TickwheelError

# Interval at which all nodes are checked even without events.
RECHECK_INTERVAL_S: Final = 10.0
# Maximum time for which a stopping process keeps driving while it waits for other processes to take over its shards.
YIELD_TIMEOUT_S: Final = 0.7

_log = logging.getLogger("tickwheel.event_process")


class ZooKeeperElection:
    """One member: a candidate for the shards that are assigned to it."""

    kind = "zookeeper"
    must_check_namespace = True

    def __init__(self, url: ZooKeeperUrl, namespace: str, shards: int, identity: bytes) -> None:
        """``identity`` distinguishes namespaces of the same name. The first call of `acquire` connects."""
        self.member = uuid.uuid4().hex
        self._url = url
        self._name = owner_name()
        self._session = ZooKeeperSession(url, self._on_state)
        self._client = self._session.client
        self._nodes = ElectionNodes(self._session, f"{url.path}/{namespace}", shards, identity)
        self._membership = Membership(self._session, self._nodes, self.member, self._name, shards, self._on_event)
        self._thread = threading.Thread(target=self._run, name="tickwheel-election", daemon=True)
        # Used by the election's thread only.
        self._is_established = False
        self._problem_log = ElectionProblemLog()
        self._assignment: Assignment = [None] * shards
        # The children of the shards' nodes that are no candidates, because no session owns them.
        self._foreign_nodes: set[str] = set()
        # Used by all threads, under the lock.
        self._changed = threading.Condition()
        self._shard_states = [ShardElectionState() for _ in range(shards)]
        self._members: dict[str, frozenset[int]] = {}
        self._unreachable_shards: set[int] = set()
        self._changed_shards = set(range(shards))
        self._membership_changed = True
        self._connected = self._leaving = self._is_alone = self._closing = False
        # If not None, this member must not be a candidate, and `acquire` raises this error.
        self._fatal_error: TickwheelError | None = None
        # Number of lost sessions. If a step was started in an earlier session, its result is ignored.
        self._losses = 0

    @property
    def unreadable_nodes(self) -> int:
        """How often this member ignored a node or its data because no event process writes such a node."""
        return self._membership.unreadable_nodes

    def acquire(self, shard: int, stop: threading.Event, on_loss: Callable[[], None]) -> ZooKeeperLeadership | None:
        """Wait until the shard is assigned to this process and the process has won the shard. Return the leadership.

        Return None if the process leaves the election, or if ``stop`` was set before the call.

        Raises TickwheelError if the election belongs to another namespace.
        """
        state = self._shard_states[shard]
        with self._changed:
            if self._leaving or stop.is_set():
                return None
            if self._fatal_error is not None:
                raise self._fatal_error
            if not self._thread.ident:
                self._session.open()
                self._thread.start()
            state.wanted, state.on_loss = True, on_loss
            self._membership_changed |= shard in self._unreachable_shards
            self._unreachable_shards.discard(shard)
            self._mark_changed([shard])
        leadership = state.wins.get()
        if leadership is None and self._fatal_error is not None:
            raise self._fatal_error
        return leadership

    def resign(self, shard: int) -> bool:
        """Mark the shard as unreachable until the next `acquire`, and return True.

        If no other member can reach the shard either, or no other member can be elected now because ZooKeeper cannot be
        reached, change nothing, and return False.
        """
        with self._changed:
            if not self._connected:
                return False
            others = (
                unreachable_shards for member, unreachable_shards in self._members.items() if member != self.member
            )
            if all(shard in unreachable_shards for unreachable_shards in others):
                return False
            self._unreachable_shards.add(shard)
            self._membership_changed = True
            self._changed.notify_all()
            return True

    def leave(self) -> None:
        """Leave the list of members. Wait until others have taken over all shards, for at most YIELD_TIMEOUT_S."""
        with self._changed:
            self._leaving = self._membership_changed = True
            self._release_waiters()
            self._mark_all_changed()
            self._changed.wait_for(self._has_yielded, YIELD_TIMEOUT_S)

    def close(self) -> None:
        """End the session, which removes this member's nodes from ZooKeeper."""
        with self._changed:
            self._leaving = self._closing = True
            self._changed.notify_all()
        if self._thread.ident:
            self._session.close()
            self._thread.join(CLOSE_S)

    def _release_waiters(self) -> None:
        for state in self._shard_states:
            if state.wanted:
                state.wanted = False
                state.wins.put(None)

    # Any thread may call the following five methods. The caller of the first three must hold the lock.

    def _mark_changed(self, shards: Iterable[int]) -> None:
        self._changed_shards.update(shards)
        self._changed.notify_all()

    def _mark_all_changed(self) -> None:
        self._membership_changed = True
        self._mark_changed(range(len(self._shard_states)))

    def _has_yielded(self) -> bool:
        return self._is_alone or not self._connected or all(state.leadership is None for state in self._shard_states)

    def _on_state(self, state: str) -> None:
        with self._changed:
            self._connected = state == KazooState.CONNECTED
            # Watches end with the connection.
            self._mark_all_changed()
            # A lost session has lost its candidates. The next check notices this and ends the leaderships. If all nodes
            # of the election are gone, the check fails, and the leaderships continue.
            self._losses += state == KazooState.LOST
            if not self._closing:
                level = logging.INFO if self._connected else logging.WARNING
                _log.log(level, "session with ZooKeeper: %s", state.lower())

    def _on_event(self, event: WatchedEvent) -> None:
        _, separator, rest = (event.path or "").partition(f"{self._nodes.shards}/")
        with self._changed:
            if separator:
                self._mark_changed([int(rest.partition("/")[0])])
            else:
                self._membership_changed = True
                self._changed.notify_all()

    # The election's thread.

    def _run(self) -> None:
        losses = 0
        while True:
            with self._changed:
                if not self._changed.wait_for(self._has_work, RECHECK_INTERVAL_S):
                    self._mark_all_changed()
                if self._closing:
                    return
                connected = self._connected
                if connected:
                    self._is_established = self._is_established and losses == self._losses
                    losses = self._losses
                    membership_changed, self._membership_changed = self._membership_changed, False
                    shards, self._changed_shards = self._changed_shards, set()
            if not connected:
                self._problem_log.unreachable(str(self._url), self._session.unresolved_hosts())
                self._session.keep_connecting()
                continue
            try:
                if membership_changed or not self._is_established:
                    shards |= self._refresh_membership()
                self._step(sorted(shards), losses)
                self._problem_log.resolved()
            except (ZooKeeperUnavailable, ZooKeeperError) as error:
                self._wait_after(error)
            except TickwheelError as refusal:
                self._end(refusal)
                return
            except Exception as error:
                # This is a bug, perhaps only with the data that the nodes have now. Without this thread, nobody would
                # notice the end of the session. The leaderships continue: a newer leader's fence replaces theirs.
                self._wait_after(error)

    def _end(self, error: TickwheelError) -> None:
        with self._changed:
            self._fatal_error = error
            self._release_waiters()
            for state in self._shard_states:
                if state.leadership is not None:
                    state.leadership.lose()

    def _wait_after(self, error: Exception) -> None:
        self._is_established = False
        with self._changed:
            self._mark_all_changed()
            if self._connected and not self._closing:
                gone = isinstance(error, NoNodeError) and self._nodes.is_established
                seconds = self._problem_log.nodes_missing() if gone else self._problem_log.failed(error)
                self._changed.wait_for(lambda: self._closing, seconds)

    def _has_work(self) -> bool:
        return self._closing or (self._connected and bool(self._membership_changed or self._changed_shards))

    def _refresh_membership(self) -> set[int]:
        """Update the list of members and the assignment. Return the shards whose assigned member has changed."""
        if not self._is_established:
            self._nodes.ensure_created()
            self._is_established = True
        with self._changed:
            unreachable_shards, leaving = frozenset(self._unreachable_shards), self._leaving
        view = self._membership.refresh(unreachable_shards, leaving=leaving)
        with self._changed:
            self._members = view.members
            self._is_alone = leaving and not view.members
            self._changed.notify_all()
        before, self._assignment = self._assignment, view.assignment
        return {shard for shard, member in enumerate(view.assignment) if member != before[shard]}

    def _step(self, shards: list[int], losses: int) -> None:
        """Read the candidates of these shards, and take the next step for each shard."""
        with self._changed:
            shard_states = [
                (self._shard_states[shard].wanted, self._shard_states[shard].leadership) for shard in shards
            ]
        requests = []
        for shard, (_, leadership) in zip(shards, shard_states, strict=True):
            # Only a leader that must hand its shard over watches for candidates. Candidates watch their predecessor.
            watch = self._on_event if leadership and self._assignment[shard] != self.member else None
            requests.append(self._client.get_children_async(self._nodes.shard(shard), watch=watch))
        started: list[tuple[int, candidacy.Step, Any]] = []
        for shard, (wanted, leadership), candidates in zip(
            shards, shard_states, self._session.await_all(requests), strict=True
        ):
            node = self._nodes.shard(shard)
            names = self._session.result_or_raise(candidates, node)
            step = candidacy.next_step(
                [name for name in names if f"{node}/{name}" not in self._foreign_nodes],
                self.member,
                assigned_to=self._assignment[shard],
                wanted=wanted,
                winning_candidate=leadership.candidate if leadership else None,
            )
            if step is not None:
                started += [(shard, step, request) for request in self._begin(shard, step)]
        results = self._session.await_all([request for _, _, request in started])
        for (shard, step, _), result in zip(started, results, strict=True):
            self._finish(shard, step, result, losses)

    def _begin(self, shard: int, step: candidacy.Step) -> list[Any]:
        node, client = self._nodes.shard(shard), self._client
        match step:
            case candidacy.CreateCandidate():
                path = f"{node}/{candidacy.prefix(self.member)}"
                return [client.create_async(path, self._name.encode(), ephemeral=True, sequence=True)]
            case candidacy.RemoveCandidates(candidates):
                return [client.delete_async(f"{node}/{candidate}") for candidate in candidates]
            case candidacy.WatchPredecessor(candidate):
                return [client.exists_async(f"{node}/{candidate}", watch=self._on_event)]
            case candidacy.ClaimLeadership(candidate):
                return [self._session.raise_epoch(node, candidate, self._name.encode())]
            case candidacy.YieldLeadership() | candidacy.LeadershipLost():
                with self._changed:
                    leadership = self._shard_states[shard].leadership
                    if leadership is not None and not leadership.lost:
                        if isinstance(step, candidacy.YieldLeadership):
                            _log.info("shard %d: handed over to another process", shard)
                        leadership.lose()
        return []

    def _finish(self, shard: int, step: candidacy.Step, result: Any, losses: int) -> None:
        try:
            done = self._session.result_or_raise(result, self._nodes.shard(shard))
        except NoNodeError:
            # The node was removed in the meantime; the next check reads the current nodes.
            done = None
        with self._changed:
            match step:
                case candidacy.WatchPredecessor(candidate) if done is not None:
                    node = f"{self._nodes.shard(shard)}/{candidate}"
                    if self._membership.is_of_session(node, done):
                        return
                    self._foreign_nodes.add(node)
                case candidacy.ClaimLeadership(candidate) if done is not None:
                    if losses == self._losses and self._shard_states[shard].wanted:
                        self._on_won(shard, candidate, done[1].version)
                        return
            self._mark_changed([shard])

    def _on_won(self, shard: int, candidate: str, epoch: int) -> None:
        state = self._shard_states[shard]

        def release() -> None:
            with self._changed:
                if state.leadership is leadership:
                    state.leadership = None
                    self._mark_changed([shard])

        leadership = ZooKeeperLeadership(epoch, candidate, state.on_loss, release)
        state.leadership, state.wanted = leadership, False
        state.wins.put(leadership)
