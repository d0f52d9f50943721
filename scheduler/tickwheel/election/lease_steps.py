"""What the thread of an election by lease does, as commands: a generator without I/O, like the driver of a shard.

The thread executes each command on the connection of the metadata shard's server, and sends the reply into the
generator. After an error of the connection, the thread makes a new generator for the next connection: the state is in
`LeaseMember` and `LeaseShards`. In tests, a simulator executes the commands.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from tickwheel.election.answer_times import longest_wait_ms, reading_pause_ms
from tickwheel.election.lease_attendance import Attendance, Attended
from tickwheel.election.lease_member import LeaseMember
from tickwheel.election.lease_shards import LeaseLeadership, LeaseShards
from tickwheel.election.loop_watch import LoopWatch
from tickwheel.storage.fence import StoredClaim

# While the process leaves, it checks this often whether others wait for its shards.
LEAVING_MS: Final = 50.0


@dataclass(frozen=True, slots=True)
class ReadClaims:
    """Reads the last claims of shards, in one round trip.

    The reply maps each shard to its `StoredClaim`, or to None if the shard's server does not answer or if the claim
    cannot be read.
    """

    shards: list[int]


@dataclass(frozen=True, slots=True)
class ReleaseShards:
    """Releases the fences of shards, if they are still the fences of these shards, in one round trip."""

    fences: dict[int, bytes]


@dataclass(frozen=True, slots=True)
class Wait:
    """Waits until a moment on the monotonic clock, or until another thread or a message wakes the thread."""

    until_ms: float


Command = Attendance | ReadClaims | ReleaseShards | Wait
Steps = Generator[Command, Any, None]


class LeaseSteps:
    """The commands of one member, over all of its connections."""

    def __init__(
        self,
        member: LeaseMember,
        shards: LeaseShards,
        *,
        lease_ms: float,
        clock: Callable[[], float],
        random: Callable[[], float],
    ) -> None:
        """``clock`` is the monotonic clock, in ms. ``random`` returns numbers from 0 to 1."""
        self._member = member
        self._shards = shards
        self._lease_ms = lease_ms
        self._clock = clock
        self._random = random
        self._watch = LoopWatch(lease_ms)
        # The leaderships whose loops hang, and until when their shards are avoided after the loops come round.
        self._hanging: dict[int, tuple[LeaseLeadership, float]] = {}
        self._attend_at = self._read_standing_at = self._read_held_at = 0.0
        # A call after a change is planned. More changes do not bring the call forward: each of them would draw a random
        # time, and of many such times the shortest is short.
        self._has_heard = False
        # When claims were last read.
        self._read_at = -inf

    def on_change(self) -> None:
        """Call soon: another member has come or gone, wants or has released a shard, or has changed the assignment.

        A shard for which this process waits may be free: its claim is read before the call.
        """
        now = self._clock()
        if not self._has_heard:
            self._has_heard = True
            self._attend_at = min(self._attend_at, now + longest_wait_ms(self._member.members) * self._random())
        if self._shards.standing():
            read_at = max(now, self._read_at + reading_pause_ms(self._member.members))
            self._read_standing_at = min(self._read_standing_at, read_at)

    def run(self) -> Steps:
        """Take part in the election over one connection, indefinitely."""
        yield from self._attend(is_first=True)
        while True:
            now = self._clock()
            if self._shards.take_change():
                self._attend_at = now
            if releases := self._shards.releases():
                yield ReleaseShards(releases)
                self._shards.on_released(releases)
            elif now >= self._attend_at:
                yield from self._attend(is_first=False)
            elif now >= min(self._read_standing_at, self._read_held_at):
                yield from self._read_claims()
            else:
                yield Wait(min(self._attend_at, self._read_standing_at, self._read_held_at))

    def _attend(self, *, is_first: bool) -> Steps:
        member, sent = self._member, self._clock()
        self._has_heard = False
        held = self._shards.held()
        self._find_hanging(held, sent)
        member.driving = {
            shard for shard, leadership in held.items() if leadership.claims.is_confirmed and shard not in self._hanging
        }
        unclaimed = {shard for shard, leadership in held.items() if not (leadership.claims.fence or leadership.lost)}
        member.waiting = self._shards.standing() | unclaimed
        member.avoided = set(self._hanging) | self._shards.resigned()
        call = member.attend(sent, is_first=is_first)
        attended: Attended = yield call
        now = self._clock()
        member.on_attended(call, attended, sent, now)
        for shard, leadership in held.items():
            if member.must_hand_over(shard):
                self._shards.lose(leadership)
        # A row may show that the driver of a shard has ended.
        self._read_standing_at = now
        self._attend_at = now + member.next_attendance(now)
        if member.is_leaving:
            self._attend_at = min(self._attend_at, now + LEAVING_MS)
            # Another member may have claimed a shard without waiting.
            self._read_held_at = now
            if not attended.rows:
                for leadership in held.values():
                    self._shards.lose(leadership)

    def _read_claims(self) -> Steps:
        """Grant the shards that the process may claim. Once in a lease, compare the fences of the shards it drives.

        A leader without work calls no script, so it would not hear that another process has claimed the shard.
        """
        now = self._clock()
        standing = {shard for shard in self._shards.standing() if self._member.is_assigned(shard)}
        accepted: dict[int, bytes] = {}
        if now >= self._read_held_at:
            self._read_held_at = now + self._lease_ms
            accepted = {shard: leadership.claims.accepted for shard, leadership in self._shards.held().items()}
        # Each attendance sets the time again.
        self._read_standing_at = now + self._lease_ms / 2
        shards = sorted(standing | {shard for shard, fence in accepted.items() if fence})
        if not shards:
            return
        claims: dict[int, StoredClaim | None] = yield ReadClaims(shards)
        now, held = self._clock(), self._shards.held()
        self._read_at = now
        self._member.on_claims({shard: claim for shard, claim in claims.items() if shard in standing}, now)
        for shard, claim in claims.items():
            if shard in standing:
                if self._member.may_claim(shard, claim, now):
                    self._shards.grant(shard, claim or StoredClaim())
                continue
            # The loop may have claimed again meanwhile.
            if claim is not None and shard in held and held[shard].claims.accepted == accepted[shard] != claim.fence:
                self._shards.lose(held[shard])

    def _find_hanging(self, held: dict[int, LeaseLeadership], now: float) -> None:
        """Give up the shards whose loops hang, and avoid them until a lease after their loops have come round."""
        for leadership in self._watch.hanging([*held.values()], now):
            self._shards.lose(leadership)
            self._hanging[leadership.shard] = leadership, now
        for shard, (leadership, until) in [*self._hanging.items()]:
            if held.get(shard) is leadership:
                self._hanging[shard] = leadership, now + self._lease_ms
            elif now >= until:
                del self._hanging[shard]
