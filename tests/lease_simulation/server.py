"""A simulated server of a namespace: the scripts of the election and of the wheel. Each script is atomic.

After a failover or a restart, another `SimulatedServer` has an earlier state of this one.
"""

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

from tests.lease_simulation.events import Fenced
from tickwheel.election.lease_attendance import Attendance, Attended, Mode
from tickwheel.election.stored_assignment import NONE_STORED, StoredAssignment
from tickwheel.storage.fence import StoredClaim

Timer = tuple[int, float]
# How long earlier states are kept, in ms.
HISTORY_MS = 6_000


@dataclass(frozen=True)
class StoredShard:
    """The state of a shard. Messages are those that are not promoted yet, each with its due time."""

    fence: bytes = b""
    holder: str = ""
    last_id: int = 0
    inbox: tuple[tuple[int, Timer], ...] = ()
    slots: frozenset[Timer] = frozenset()
    messages: frozenset[Timer] = frozenset()
    outbox: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class State:
    """The state of a server."""

    shards: tuple[StoredShard, ...]
    rows: dict[str, bytes] = field(default_factory=dict)
    assignment: StoredAssignment = NONE_STORED


class SimulatedServer:
    """One server, from its start. ``world`` checks what the server sees."""

    def __init__(self, world: Any, state: State, clock_offset: float) -> None:
        self.is_up = True
        self.frozen_until = 0.0
        self.clock_offset = clock_offset
        self.state = state
        self._world = world
        self._history = deque([(world.events.now, state)])
        # The claim that each shard obeys, and the earlier ones.
        self._claims: dict[int, object] = {}
        self._superseded: set[tuple[int, object]] = set()

    @property
    def now(self) -> float:
        return float(self._world.events.now + self.clock_offset)

    def state_at(self, time: float) -> State:
        """Return the state that the server had at this time."""
        return next((state for since, state in reversed(self._history) if since <= time), self._history[0][1])

    # The scripts of the election.

    def attend(self, member: str, call: Attendance) -> Attended:
        rows, assignment = dict(self.state.rows), self.state.assignment
        had_row = member in rows
        is_news, agrees = False, True
        for dead, seen in call.removals:
            if dead in rows and (rows[dead] == seen or self._world.is_mutant("no comparison")):
                del rows[dead]
                is_news = True
            elif dead in rows:
                agrees = False
        if call.mode is Mode.LEAVE:
            is_news = rows.pop(member, None) is not None or is_news
        elif call.mode is Mode.JOIN or (call.mode is Mode.KEEP and had_row):
            rows[member] = call.row.pack(len(self.state.shards))
            is_news = is_news or not had_row or call.announces
        if call.proposal and agrees and assignment.header == call.seen.header:
            assignment, is_news = call.proposal, True
        self._store(replace(self.state, rows=rows, assignment=assignment))
        if is_news:
            self._world.publish_change(self, member)
        return Attended(had_row, rows, assignment)

    def read_claims(self, shards: list[int]) -> dict[int, StoredClaim | None]:
        stored = {n: self.state.shards[n] for n in shards}
        return {
            n: StoredClaim(shard.fence, "lease" if shard.fence else "", shard.holder) for n, shard in stored.items()
        }

    def claim(self, n: int, seen: bytes, fence: bytes, member: str, claim: object) -> bool:
        shard = self.state.shards[n]
        if shard.fence != seen and not self._world.is_mutant("no comparison"):
            raise Fenced
        if n in self._claims and self._claims[n] != claim:
            self._superseded.add((n, self._claims[n]))
        self._claims[n] = claim
        self._world.on_claimed(self, n, fence, shard.holder, member)
        self._put(n, fence=fence, holder=member)
        return True

    def release(self, fences: dict[int, bytes]) -> None:
        for n, fence in fences.items():
            if self.state.shards[n].fence == fence:
                self._put(n, fence=fence[:8] + bytes(8), holder="")

    # The scripts of the wheel.

    def read(self, n: int, after: int) -> tuple[float, list[tuple[int, Timer]], frozenset[Timer], Any]:
        shard = self.state.shards[n]
        return self.now, [entry for entry in shard.inbox if entry[0] > after], shard.slots, shard.outbox

    def promote(self, n: int, fence: bytes, claim: object, timers: list[Timer]) -> list[Timer]:
        shard = self._driven(n, fence, claim)
        due = [timer for timer in timers if timer[1] <= self.now]
        promoted = sorted(shard.messages.intersection(due))
        events = tuple((shard.last_id + i, self._world.next_event()) for i in range(1, len(promoted) + 1))
        self._put(
            n,
            messages=shard.messages.difference(promoted),
            outbox=shard.outbox + events,
            last_id=shard.last_id + len(promoted),
        )
        return due

    def file(self, n: int, fence: bytes, claim: object, last: int, timers: list[Timer]) -> None:
        shard = self._driven(n, fence, claim)
        inbox = tuple(entry for entry in shard.inbox if entry[0] > last)
        self._put(n, inbox=inbox, slots=shard.slots.union(timers))
        self.check_timers(n)

    def drop(self, n: int, fence: bytes, claim: object, timers: list[Timer]) -> None:
        shard = self._driven(n, fence, claim)
        self._put(n, slots=shard.slots.difference(timers))
        self.check_timers(n)

    def trim_outbox(self, n: int, fence: bytes, claim: object, first: int, last: int) -> None:
        shard = self._driven(n, fence, claim)
        if not shard.outbox or shard.outbox[0][0] != first:
            return
        for id, event in shard.outbox:
            if id <= last and event not in self._world.published:
                self._world.report("an event is lost", f"shard {n}")
        self._put(n, outbox=tuple(entry for entry in shard.outbox if entry[0] > last))

    def enqueue(self, n: int, message: int, delay: float) -> None:
        shard, timer = self.state.shards[n], (message, self.now + delay)
        entry = (shard.last_id + 1, timer)
        self._put(n, last_id=entry[0], inbox=(*shard.inbox, entry), messages=shard.messages | {timer})

    def check_timers(self, n: int) -> None:
        """Each message that is not promoted yet has its timer in the inbox or in a slot."""
        shard = self.state.shards[n]
        if not shard.messages <= shard.slots | {timer for _, timer in shard.inbox}:
            self._world.report("a timer is lost", f"shard {n}")

    def _driven(self, n: int, fence: bytes, claim: object) -> StoredShard:
        """Reject the call of a driver with another fence. Check that the fence has rejected former drivers."""
        shard = self.state.shards[n]
        if shard.fence != fence and not self._world.is_mutant("no fence"):
            raise Fenced
        if (n, claim) in self._superseded or not self._world.is_claim_of(claim, self):
            self._world.report("a former driver writes", f"shard {n}")
        return shard

    def _put(self, n: int, **changes: Any) -> None:
        shards = list(self.state.shards)
        shards[n] = replace(shards[n], **changes)
        self._store(replace(self.state, shards=tuple(shards)))

    def _store(self, state: State) -> None:
        now = self._world.events.now
        self.state = state
        self._history.append((now, state))
        while len(self._history) > 2 and self._history[1][0] < now - HISTORY_MS:
            self._history.popleft()
