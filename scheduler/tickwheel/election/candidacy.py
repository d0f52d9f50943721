"""The next step of a member for one shard, decided from the shard's candidates and the assignment, without I/O.

A shard's candidates are ephemeral sequential nodes in ZooKeeper; the lowest one may win. The member reads the
candidates, takes one step and reads the candidates again, so a missed event cannot block the election. The recipe is
ZooKeeper's leader election.
"""

from collections.abc import Sequence
from dataclasses import dataclass

SEQUENCE_DIGITS = 10


@dataclass(frozen=True, slots=True)
class CreateCandidate:
    """Become a candidate."""


@dataclass(frozen=True, slots=True)
class RemoveCandidates:
    """Remove these candidates of the member."""

    candidates: Sequence[str]


@dataclass(frozen=True, slots=True)
class WatchPredecessor:
    """Read the candidates again when this candidate, the one before the member's own, is gone."""

    candidate: str


@dataclass(frozen=True, slots=True)
class ClaimLeadership:
    """Become the leader, if the member's candidate still exists when the epoch is raised."""

    candidate: str


@dataclass(frozen=True, slots=True)
class WatchForSuccessor:
    """Keep driving until the member to which the shard is assigned is a candidate. Watch for new candidates."""


@dataclass(frozen=True, slots=True)
class YieldLeadership:
    """Stop driving: the member to which the shard is assigned is a candidate."""


@dataclass(frozen=True, slots=True)
class LeadershipLost:
    """Stop driving: the candidate that won is gone, so the leadership is lost."""


Step = (
    CreateCandidate
    | RemoveCandidates
    | WatchPredecessor
    | ClaimLeadership
    | WatchForSuccessor
    | YieldLeadership
    | LeadershipLost
)


def next_step(
    candidates: Sequence[str], member: str, *, assigned_to: str | None, wanted: bool, winning_candidate: str | None
) -> Step | None:
    """Return the next step of ``member`` for a shard; None if there is nothing to do until something changes.

    ``assigned_to`` is the member that should drive the shard. ``wanted`` is true while this member waits to lead the
    shard. ``winning_candidate`` is the candidate with which this member leads the shard; None if it does not lead the
    shard.
    """
    ranked = sorted(candidates, key=_sequence)
    own = [candidate for candidate in ranked if member_of(candidate) == member]
    if winning_candidate is not None:
        if winning_candidate not in own:
            return LeadershipLost()
        if len(own) > 1:
            return RemoveCandidates([candidate for candidate in own if candidate != winning_candidate])
        if assigned_to == member:
            return None
        return (
            YieldLeadership()
            if any(member_of(candidate) == assigned_to for candidate in ranked)
            else WatchForSuccessor()
        )
    if not (wanted and assigned_to == member):
        return RemoveCandidates(own) if own else None
    if not own:
        return CreateCandidate()
    # A member has several candidates if the reply to an earlier `CreateCandidate` was lost.
    if len(own) > 1:
        return RemoveCandidates(own[1:])
    index = ranked.index(own[0])
    return WatchPredecessor(ranked[index - 1]) if index else ClaimLeadership(own[0])


def prefix(member: str) -> str:
    """Return the start of the names of a member's candidates. ZooKeeper appends the sequence number."""
    return f"{member}-"


def member_of(candidate: str) -> str:
    return candidate[: -SEQUENCE_DIGITS - 1]


def _sequence(candidate: str) -> str:
    return candidate[-SEQUENCE_DIGITS:]
