"""What a member does next about one shard: decided from the shard's candidates alone, without I/O.

A shard's candidates are ephemeral sequential nodes in ZooKeeper; the lowest may win. Each look decides one step, and
after the step is another look: so nothing hangs on an event that was missed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

SEQUENCE_DIGITS = 10


@dataclass(frozen=True, slots=True)
class CreateCandidate:
    """Become a candidate."""


@dataclass(frozen=True, slots=True)
class RemoveCandidates:
    """Remove these candidates of one's own."""

    candidates: Sequence[str]


@dataclass(frozen=True, slots=True)
class WatchPredecessor:
    """Look again when this candidate, the one before one's own, is gone."""

    candidate: str


@dataclass(frozen=True, slots=True)
class ClaimLeadership:
    """Be the leader, if one's candidate is still there when the epoch is raised."""

    candidate: str


@dataclass(frozen=True, slots=True)
class WatchForSuccessor:
    """Go on driving, and look again when somebody stands: another is to have the shard."""


@dataclass(frozen=True, slots=True)
class YieldLeadership:
    """The one who is to have the shard stands behind: stop driving."""


@dataclass(frozen=True, slots=True)
class LeadershipLost:
    """The candidate that won is gone, and the leadership with it."""


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
    """What member ``me`` does about a shard; None: nothing, until something changes.

    ``assigned_to`` is the member that is to drive it, ``wanted`` says that this one's loop waits for it, ``leading``
    names the candidate that it leads by.
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
    # More than one where the answer to an earlier `Stand` was lost.
    if len(own) > 1:
        return RemoveCandidates(own[1:])
    index = ranked.index(own[0])
    return WatchPredecessor(ranked[index - 1]) if index else ClaimLeadership(own[0])


def prefix(member: str) -> str:
    """The start of a candidate's name: whose it is. ZooKeeper appends its sequence."""
    return f"{member}-"


def member_of(candidate: str) -> str:
    return candidate[: -SEQUENCE_DIGITS - 1]


def _sequence(candidate: str) -> str:
    return candidate[-SEQUENCE_DIGITS:]
