"""A member of an election by lease: what it writes, sees and decides, without I/O.

Each member has a row on the metadata shard, with a beat that grows. If the beat of another member stays unchanged for a
lease on this member's own monotonic clock, the other member has died: this member removes the row, unless the row has
changed meanwhile. If the leases of both differ, the longer one counts. No clock of the server takes part. Any member
that sees an outdated assignment of shards replaces the assignment, over the version that it has seen. A shard has only
a fence: a member claims the shard over the fence that it has seen.

The protocol and its rules were simulated before they were built (docs/decisions/0027-election-by-lease.md).
"""

from collections import deque
from collections.abc import Callable, Mapping
from math import inf
from typing import Final

from tickwheel.election.answer_times import longest_wait_ms
from tickwheel.election.assignment import Assignment, assign_by_rank
from tickwheel.election.lease_attendance import Attendance, Attended, Mode
from tickwheel.election.lease_row import EVENT_PROCESS, NewerRow, Row
from tickwheel.election.stored_assignment import NONE_STORED, StoredAssignment
from tickwheel.election.unclaimed_shards import UnclaimedShards
from tickwheel.storage.fence import StoredClaim

# A member calls this many times in a lease.
CALLS_PER_LEASE: Final = 4
_SHORTEST_WAIT_MS: Final = 5.0
# A member that was removed although it lives joins again at once the first time in a minute. The next times it waits,
# longer each time: its shards would otherwise move with each of its pauses.
_REMOVALS_MS: Final = 60_000.0
_REJOIN_MS: Final = 5_000.0
_REJOIN_MAX_MS: Final = 20_000.0
# A member claims the shard of a living member only if that member does not list the shard over this many beats.
_BEATS_WITHOUT_DRIVING: Final = 2
# The maximum number of assignments that a member proposes within a lease.
MAX_PROPOSALS: Final = 8
# The name of this kind of election in shards.
KIND: Final = "lease"
# A member of which only the assignment is known.
_UNKNOWN: Final = Row(EVENT_PROCESS, 0, frozenset(), frozenset(), frozenset(), "")


class LeaseMember:
    """The state of one member. Used by one thread. All times are on the member's monotonic clock, in ms."""

    def __init__(
        self,
        id: str,
        shards: int,
        *,
        rank: int,
        name: str,
        lease_ms: float,
        random: Callable[[], float],
        waits_for_unclaimed: bool = True,
    ) -> None:
        """``random`` returns numbers from 0 to 1, for jitter and for the identity of assignments.

        With ``waits_for_unclaimed``, a member of the last resort waits before it claims shards that nobody has claimed.
        """
        self.id = id
        # The shards whose loops wait for a leadership, those that the member drives, and those that it cannot drive.
        self.waiting: set[int] = set()
        self.driving: set[int] = set()
        self.avoided: set[int] = set()
        self.is_leaving = False
        self._shards = shards
        self._rank = rank
        self._name = name
        self._lease_ms = lease_ms
        self._random = random
        # None if the member does not wait.
        self._unclaimed = UnclaimedShards(KIND) if waits_for_unclaimed and rank != EVENT_PROCESS else None
        self._beat = 0
        # What the last reply showed.
        self._rows: dict[str, Row | None] = {}
        self._stored = NONE_STORED
        self._has_begun = False
        # The assignment that the member follows, and the highest version that it has seen.
        self._followed: Assignment = [None] * shards
        self._version = 0
        # The row of each other member, and since when it is unchanged; and the members that have changed their rows.
        self._seen: dict[str, tuple[bytes, float]] = {}
        self._writing: set[str] = set()
        self._announced: Row | None = None
        # The metadata was set back: until then the members that were known count as present.
        self._held_until = 0.0
        self._held: dict[str, Row] = {}
        # Any thread may read the number of rows that no version of Tickwheel writes.
        self.unreadable_rows = 0
        self._removed_at: deque[float] = deque()
        self._rejoin_at = 0.0
        self._proposed_at: deque[float] = deque(maxlen=MAX_PROPOSALS)
        # The fence of a shard whose holder does not list the shard, and the beat of the holder at that time.
        self._unlisted: dict[int, tuple[bytes, int]] = {}

    # What the member writes.

    @property
    def wanted(self) -> frozenset[int]:
        """The shards that are assigned to this member and wait for their leadership."""
        return frozenset(shard for shard in self.waiting if self.is_assigned(shard))

    def is_assigned(self, shard: int) -> bool:
        """Whether this member should drive the shard."""
        return not self.is_leaving and self._followed[shard] == self.id

    def attend(self, now: float, *, is_first: bool) -> Attendance:
        """Return the next call.

        The first call on a connection judges nobody: no beat could grow while the server was unreachable.
        """
        self._beat += 1
        row, mode = self._own_row(), self._mode(now)
        dead = [] if is_first else self._dead(now)
        proposal = None if is_first else self._proposal(now, dead)
        if proposal is not None:
            self._proposed_at.append(now)
        return Attendance(
            mode=mode,
            row=row,
            announces=row.is_news(self._announced),
            removals=[(member, self._seen[member][0]) for member in dead],
            seen=self._stored,
            proposal=proposal,
            is_first=is_first,
        )

    # What the member sees.

    def on_attended(self, call: Attendance, reply: Attended, sent: float, now: float) -> None:
        """Take over the reply to a call that was sent at ``sent``."""
        version = reply.assignment.version
        if call.mode is Mode.KEEP and self.id in self._rows and not reply.had_row and self._version <= version:
            self._on_removed(now)
        self._announced = call.row if self.id in reply.rows else None
        before, self._rows = self._rows, self._parse(reply.rows)
        # The beats of members could not grow while the server did not answer.
        self._observe(reply.rows, now, anew=call.is_first or now - sent > self._lease_ms / 2)
        if self._unclaimed is not None:
            self._unclaimed.on_answer(now, is_first=call.is_first)
        if self._has_begun and version < self._version:
            # A failover or a restart has set the metadata back. The known members keep their shards for a lease, the
            # longest of their leases: they need that time to write their rows again.
            self._held = {member: _UNKNOWN for member in self._followed if member is not None}
            self._held |= {member: row for member, row in before.items() if row is not None}
            self._held_until = now + max(self._lease_with(row) for row in (None, *self._held.values()))
        self._version = version
        self._stored, self._has_begun = reply.assignment, True
        if now >= self._held_until or self._stored.members:
            self._followed = self._stored.of(self._shards)

    def next_attendance(self, now: float) -> float:
        """Return how long to wait before the next call, in ms."""
        must_announce = self._announced is not None and self._own_row().is_news(self._announced)
        if must_announce or self._proposal(now, self._dead(now)) is not None:
            return longest_wait_ms(self.members) * self._random()
        ends = (since + self._lease_of(member) + 1 - now for member, (_, since) in self._seen.items())
        return max(min(self._lease_ms / CALLS_PER_LEASE, *ends, inf), _SHORTEST_WAIT_MS)

    @property
    def members(self) -> int:
        """How many members the last reply showed, this one included."""
        return len(self._rows)

    def others(self, now: float) -> list[str]:
        """Return the other members that have written their rows again within half a lease. Any thread may call this.

        The first row that this member sees may be of a member that was killed, and can take over no shard.
        """
        return [
            member
            for member, (_, since) in self._seen.items()
            if member in self._writing and now - since < self._lease_of(member) / 2
        ]

    def is_avoided_by_others(self, shard: int) -> bool:
        """Return whether no other member can drive the shard. Any thread may call this."""
        rows = (row for member, row in self._rows.items() if member != self.id)
        return all(row is not None and shard in row.avoids for row in rows)

    # What the member decides about shards.

    def on_claims(self, claims: Mapping[int, StoredClaim | None], now: float) -> None:
        """Take over the claims, just read, of the shards that wait for their leadership and are assigned to the member.

        None is a claim that cannot be read.
        """
        if self._unclaimed is not None:
            is_driven = any(row is not None and row.drives for row in self._rows.values())
            self._unclaimed.on_claims(claims, now, is_driven=is_driven)

    def may_claim(self, shard: int, claim: StoredClaim | None, now: float) -> bool:
        """Return whether the member may claim the shard over this claim, which it has just passed to `on_claims`."""
        if not self.is_assigned(shard) or self.id not in self._rows:
            return False
        if claim is None:
            # The loop finds out why the claim cannot be read. It may find that nobody has claimed the shard.
            return self._may_claim_unclaimed()
        if claim.election not in ("", KIND):
            # An event process takes a shard of lock files over, and ends with an error if the shard has another kind.
            return self._rank == EVENT_PROCESS
        if not claim.election and not self._may_claim_unclaimed():
            return False
        if claim.holder in ("", self.id):
            return True
        if claim.holder not in self._rows:
            return now >= self._held_until
        holder = self._rows[claim.holder]
        if holder is None:
            return False
        if shard in holder.avoids:
            return True
        # The holder lives, but may not drive the shard: a failover has lost its release.
        fence, beat = self._unlisted.get(shard, (b"", 0))
        if shard in holder.drives or fence != claim.fence:
            self._unlisted[shard] = claim.fence, holder.beat
            return False
        return holder.beat >= beat + _BEATS_WITHOUT_DRIVING

    def must_hand_over(self, shard: int) -> bool:
        """Return whether another member, to which the shard is assigned, waits for the shard."""
        heir = self._followed[shard]
        row = self._rows.get(heir) if heir is not None and heir != self.id else None
        return row is not None and shard in row.wants

    def _may_claim_unclaimed(self) -> bool:
        """Return whether the member may claim a shard that nobody has ever claimed."""
        return self._unclaimed is None or self._unclaimed.may_claim

    def _on_removed(self, now: float) -> None:
        self._removed_at.append(now)
        while self._removed_at[0] < now - _REMOVALS_MS:
            self._removed_at.popleft()
        again = len(self._removed_at) - 1
        if again:
            self._rejoin_at = now + min(_REJOIN_MS * 2 ** (again - 1), _REJOIN_MAX_MS)

    def _own_row(self) -> Row:
        shards = (self.wanted, frozenset(self.driving), frozenset(self.avoided))
        return Row(self._rank, self._beat, *shards, self._name, round(self._lease_ms))

    def _mode(self, now: float) -> Mode:
        if self.is_leaving:
            return Mode.LEAVE
        if self.id in self._rows:
            return Mode.KEEP
        return Mode.JOIN if now >= self._rejoin_at or not self._rows else Mode.KEEP

    def _observe(self, rows: Mapping[str, bytes], now: float, *, anew: bool) -> None:
        # Replaced and not changed, because other threads call `others`.
        self._writing = {m for m, row in rows.items() if m in self._writing or self._seen.get(m, (row, now))[0] != row}
        seen = {} if anew else self._seen
        self._seen = {
            member: seen[member] if member in seen and seen[member][0] == row else (row, now)
            for member, row in rows.items()
            if member != self.id
        }

    def _dead(self, now: float) -> list[str]:
        return [member for member, (_, since) in self._seen.items() if now - since >= self._lease_of(member)]

    def _lease_of(self, member: str) -> float:
        """Return how long the row of another member may stay unchanged."""
        return self._lease_with(self._rows.get(member))

    def _lease_with(self, row: Row | None) -> float:
        """Return the longer lease of this member and of the one with this row, if its lease is known."""
        return max(self._lease_ms, row.lease_ms if row is not None else 0)

    def _proposal(self, now: float, dead: list[str]) -> StoredAssignment | None:
        """Return the assignment that should follow the stored one; None if the stored one is right."""
        if not self._has_begun:
            return None
        members = {member: row for member, row in self._rows.items() if member not in dead}
        if any(row is None for row in members.values()):
            # A later version of Tickwheel takes part, and may assign shards in another way.
            return None
        is_held = now < self._held_until
        if is_held:
            members = {**self._held, **members}
        members.pop(self.id, None)
        if self.id in self._rows or self._mode(now) is Mode.JOIN:
            members[self.id] = self._own_row()
        if self.is_leaving:
            members.pop(self.id, None)
        if not members or self._has_proposed_often(now):
            return None
        ranks = [
            {member: row.avoids for member, row in members.items() if row and row.rank == rank}
            for rank in sorted({row.rank for row in members.values() if row})
        ]
        stored = self._stored.of(self._shards)
        following = assign_by_rank(ranks, self._shards, self._followed if is_held else stored)
        if following == stored:
            return None
        version = max(self._version, self._stored.version) + 1
        return StoredAssignment.make(version, following, self._random)

    def _has_proposed_often(self, now: float) -> bool:
        """Return whether the member has proposed MAX_PROPOSALS assignments within a lease.

        Members that know different members, because the metadata was lost, may replace the assignments of each other.
        """
        return len(self._proposed_at) == MAX_PROPOSALS and self._proposed_at[0] > now - self._lease_ms

    def _parse(self, rows: Mapping[str, bytes]) -> dict[str, Row | None]:
        """Return the rows of the members, with None for the rows of later versions, and without other data."""
        parsed: dict[str, Row | None] = {}
        for member, row in rows.items():
            try:
                parsed[member] = Row.unpack(row)
            except NewerRow:
                parsed[member] = None
            except ValueError:
                self.unreadable_rows += 1
        return parsed
