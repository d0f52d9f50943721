"""Election on ZooKeeper: members share the shards evenly, and the lowest candidate of each shard wins its next epoch.

Under the namespace's node (`root.py`) are `members/<id>` and `assignment` (`roll.py`), and `shards/<n>`: its version is
the epoch, its children are the candidates (`candidacy.py`), ephemeral and sequential.

One thread does all of it. It looks at what may have changed and takes one step towards what should be, again and again;
events only say where to look. So an event that was missed delays, at most until the next look at everything.
"""

import logging
import threading
import uuid
from collections.abc import Callable, Iterable
from typing import Any, Final

from kazoo.exceptions import NoNodeError
from kazoo.exceptions import ZookeeperError as ZooKeeperError
from kazoo.protocol.states import KazooState, WatchedEvent

from tickwheel.election import candidacy
from tickwheel.election.assignment import Assignment
from tickwheel.election.election import owner
from tickwheel.election.membership import Roll
from tickwheel.election.problem_log import Trouble
from tickwheel.election.shard_state import Seat, ZooKeeperLeadership
from tickwheel.election.znodes import Root
from tickwheel.election.zookeeper_session import CLOSE_S, Away, Ensemble
from tickwheel.election.zookeeper_url import ZooKeeperUrl
from tickwheel.errors import TickwheelError

# Everything is looked at so often in any case.
LOOK_S: Final = 10.0
# A process that ends goes on driving until others stand for its shards, for so long at most.
HAND_OVER_S: Final = 0.7

_log = logging.getLogger("tickwheel.event_process")


class ZooKeeperElection:
    """One member: a process that stands for the shards that are assigned to it."""

    kind = "zookeeper"

    def __init__(self, url: ZooKeeperUrl, namespace: str, shards: int, identity: bytes) -> None:
        """``identity`` tells the namespace from others of its name. Connects when the first shard is asked for."""
        self.member = uuid.uuid4().hex
        self._url = url
        self._name = owner()
        self._ensemble = Ensemble(url, self._on_state)
        self._client = self._ensemble.client
        self._root = Root(self._ensemble, f"{url.path}/{namespace}", shards, identity)
        self._roll = Roll(self._ensemble, self._root, self.member, self._name, shards, self._on_event)
        self._thread = threading.Thread(target=self._run, name="tickwheel-election", daemon=True)
        # Of the thread alone.
        self._entered = False
        self._trouble = Trouble()
        self._assignment: Assignment = [None] * shards
        # Of all threads, under the lock.
        self._changed = threading.Condition()
        self._seats = [Seat() for _ in range(shards)]
        self._members: dict[str, frozenset[int]] = {}
        self._avoids: set[int] = set()
        self._to_look_at = set(range(shards))
        self._roll_changed = True
        self._connected = self._leaving = self._alone = self._closing = False
        # Why this member must not stand.
        self._refusal: TickwheelError | None = None
        # Sessions lost so far: what was begun in an earlier one counts no more.
        self._losses = 0

    def acquire(self, shard: int, stop: threading.Event, on_loss: Callable[[], None]) -> ZooKeeperLeadership | None:
        """Wait until this process is to drive the shard, and has won it; None if it leaves the election first.

        Raises TickwheelError where the election is another namespace's.
        """
        seat = self._seats[shard]
        with self._changed:
            if self._leaving or stop.is_set():
                return None
            if self._refusal is not None:
                raise self._refusal
            if not self._thread.ident:
                self._ensemble.open()
                self._thread.start()
            seat.wanted, seat.on_loss = True, on_loss
            self._roll_changed |= shard in self._avoids
            self._avoids.discard(shard)
            self._look_at([shard])
        won = seat.won.get()
        if won is None and self._refusal is not None:
            raise self._refusal
        return won

    def resign(self, shard: int) -> bool:
        """Avoid the shard until it is asked for again; False where no other member can reach it either."""
        with self._changed:
            others = (avoids for member, avoids in self._members.items() if member != self.member)
            if all(shard in avoids for avoids in others):
                return False
            self._avoids.add(shard)
            self._roll_changed = True
            self._changed.notify_all()
            return True

    def leave(self) -> None:
        """Be no member; go on driving until others stand for what this one drives, for HAND_OVER_S at most."""
        with self._changed:
            self._leaving = self._roll_changed = True
            self._dismiss()
            self._look_at_all()
            self._changed.wait_for(self._has_handed_over, HAND_OVER_S)

    def close(self) -> None:
        """End the session, and so remove what is left in ZooKeeper."""
        with self._changed:
            self._leaving = self._closing = True
            self._changed.notify_all()
        if self._thread.ident:
            self._ensemble.close()
            self._thread.join(CLOSE_S)

    def _dismiss(self) -> None:
        for seat in self._seats:
            if seat.wanted:
                seat.wanted = False
                seat.won.put(None)

    # What may have changed, from any thread; the first three under the lock.

    def _look_at(self, shards: Iterable[int]) -> None:
        self._to_look_at.update(shards)
        self._changed.notify_all()

    def _look_at_all(self) -> None:
        self._roll_changed = True
        self._look_at(range(len(self._seats)))

    def _has_handed_over(self) -> bool:
        return self._alone or not self._connected or all(seat.leadership is None for seat in self._seats)

    def _on_state(self, state: str) -> None:
        with self._changed:
            self._connected = state == KazooState.CONNECTED
            # Watches end with the connection.
            self._look_at_all()
            # The next look ends the leaderships, unless the election's nodes are gone, too.
            self._losses += state == KazooState.LOST
            if not self._closing:
                level = logging.INFO if self._connected else logging.WARNING
                _log.log(level, "the session with ZooKeeper: %s", state.lower())

    def _on_event(self, event: WatchedEvent) -> None:
        _, found, rest = (event.path or "").partition(f"{self._root.shards}/")
        with self._changed:
            if found:
                self._look_at([int(rest.partition("/")[0])])
            else:
                self._roll_changed = True
                self._changed.notify_all()

    # The thread.

    def _run(self) -> None:
        losses = 0
        while True:
            with self._changed:
                if not self._changed.wait_for(self._has_work, LOOK_S):
                    self._look_at_all()
                if self._closing:
                    return
                connected = self._connected
                if connected:
                    self._entered = self._entered and losses == self._losses
                    losses = self._losses
                    roll, self._roll_changed = self._roll_changed, False
                    shards, self._to_look_at = self._to_look_at, set()
            if not connected:
                self._trouble.unreachable(str(self._url), self._ensemble.unresolved())
                self._ensemble.seek()
                continue
            try:
                if roll or not self._entered:
                    shards |= self._call_roll()
                self._step(sorted(shards), losses)
                self._trouble.is_over()
            except (Away, ZooKeeperError) as error:
                self._wait_after(error)
            except TickwheelError as refusal:
                self._end(refusal)
                return

    def _end(self, refusal: TickwheelError) -> None:
        with self._changed:
            self._refusal = refusal
            self._dismiss()
            for seat in self._seats:
                if seat.leadership is not None:
                    seat.leadership.lose()

    def _wait_after(self, error: Away | ZooKeeperError) -> None:
        self._entered = False
        with self._changed:
            self._look_at_all()
            if self._connected and not self._closing:
                gone = isinstance(error, NoNodeError) and self._root.was_entered
                seconds = self._trouble.are_gone() if gone else self._trouble.failed(error)
                self._changed.wait_for(lambda: self._closing, seconds)

    def _has_work(self) -> bool:
        return self._closing or (self._connected and bool(self._roll_changed or self._to_look_at))

    def _call_roll(self) -> set[int]:
        """Bring the list of members and the assignment up to date; the shards that changed hands."""
        if not self._entered:
            self._root.enter()
            self._entered = True
        with self._changed:
            avoids, leaving = frozenset(self._avoids), self._leaving
        called = self._roll.call(avoids, leaving=leaving)
        with self._changed:
            self._members = called.members
            self._alone = leaving and not called.members
            self._changed.notify_all()
        before, self._assignment = self._assignment, called.assignment
        return {shard for shard, member in enumerate(called.assignment) if member != before[shard]}

    def _step(self, shards: list[int], losses: int) -> None:
        """Look at the candidates of these shards, and do for each what comes next."""
        with self._changed:
            had = [(self._seats[shard].wanted, self._seats[shard].leadership) for shard in shards]
        asked = []
        for shard, (_, leadership) in zip(shards, had, strict=True):
            # Only who is to hand over watches who comes; others watch the one before them.
            watch = self._on_event if leadership and self._assignment[shard] != self.member else None
            asked.append(self._client.get_children_async(self._root.shard(shard), watch=watch))
        begun: list[tuple[int, candidacy.Step, Any]] = []
        for shard, (wanted, leadership), candidates in zip(shards, had, self._ensemble.answers(asked), strict=True):
            step = candidacy.next_step(
                self._ensemble.accepted(candidates, self._root.shard(shard)),
                self.member,
                assigned_to=self._assignment[shard],
                wanted=wanted,
                leading=leadership.candidate if leadership else None,
            )
            if step is not None:
                begun += [(shard, step, request) for request in self._begin(shard, step)]
        results = self._ensemble.answers([request for _, _, request in begun])
        for (shard, step, _), result in zip(begun, results, strict=True):
            self._finish(shard, step, result, losses)

    def _begin(self, shard: int, step: candidacy.Step) -> list[Any]:
        node, client = self._root.shard(shard), self._client
        match step:
            case candidacy.Stand():
                path = f"{node}/{candidacy.prefix(self.member)}"
                return [client.create_async(path, self._name.encode(), ephemeral=True, sequence=True)]
            case candidacy.Withdraw(candidates):
                return [client.delete_async(f"{node}/{candidate}") for candidate in candidates]
            case candidacy.WaitFor(candidate):
                return [client.exists_async(f"{node}/{candidate}", watch=self._on_event)]
            case candidacy.Win(candidate):
                return [self._ensemble.raise_epoch(node, candidate, self._name.encode())]
            case candidacy.HandOver() | candidacy.Deposed():
                with self._changed:
                    leadership = self._seats[shard].leadership
                    if leadership is not None and not leadership.lost:
                        if isinstance(step, candidacy.HandOver):
                            _log.info("shard %d: handed over to another process", shard)
                        leadership.lose()
        return []

    def _finish(self, shard: int, step: candidacy.Step, result: Any, losses: int) -> None:
        try:
            done = self._ensemble.accepted(result, self._root.shard(shard))
        except NoNodeError:
            # Gone meanwhile: the next look shows what is there.
            done = None
        with self._changed:
            match step:
                case candidacy.WaitFor() if done is not None:
                    return
                case candidacy.Win(candidate) if done is not None:
                    if losses == self._losses and self._seats[shard].wanted:
                        self._won(shard, candidate, done[1].version)
                        return
            self._look_at([shard])

    def _won(self, shard: int, candidate: str, epoch: int) -> None:
        seat = self._seats[shard]

        def release() -> None:
            with self._changed:
                if seat.leadership is leadership:
                    seat.leadership = None
                    self._look_at([shard])

        leadership = ZooKeeperLeadership(epoch, candidate, seat.on_loss, release)
        seat.leadership, seat.wanted = leadership, False
        seat.won.put(leadership)
