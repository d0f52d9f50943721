"""What a member does next about one shard: decided from the shard's candidates alone, without I/O.

A shard's candidates are ephemeral sequential nodes in ZooKeeper; the lowest may win. Each look decides one step, and
after the step is another look: so nothing hangs on an event that was missed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

SEQUENCE_DIGITS = 10


@dataclass(frozen=True, slots=True)
class Stand:
    """Become a candidate."""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Remove these candidates of one's own."""

    candidates: Sequence[str]


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Look again when this candidate, the one before one's own, is gone."""

    candidate: str


@dataclass(frozen=True, slots=True)
class Win:
    """Be the leader, if one's candidate is still there when the epoch is raised."""

    candidate: str


@dataclass(frozen=True, slots=True)
class LookOut:
    """Go on driving, and look again when somebody stands: another is to have the shard."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """The one who is to have the shard stands behind: stop driving."""


@dataclass(frozen=True, slots=True)
class Deposed:
    """The candidate that won is gone, and the leadership with it."""


Step = Stand | Withdraw | WaitFor | Win | LookOut | HandOver | Deposed


def next_step(
    candidates: Sequence[str], me: str, *, assigned_to: str | None, wanted: bool, leading: str | None
) -> Step | None:
    """What member ``me`` does about a shard; None: nothing, until something changes.

    ``assigned_to`` is the member that is to drive it, ``wanted`` says that this one's loop waits for it, ``leading``
    names the candidate that it leads by.
    """
    ranked = sorted(candidates, key=_sequence)
    own = [each for each in ranked if member_of(each) == me]
    if leading is not None:
        if leading not in own:
            return Deposed()
        if len(own) > 1:
            return Withdraw([each for each in own if each != leading])
        if assigned_to == me:
            return None
        return HandOver() if any(member_of(each) == assigned_to for each in ranked) else LookOut()
    if not (wanted and assigned_to == me):
        return Withdraw(own) if own else None
    if not own:
        return Stand()
    # More than one where the answer to an earlier `Stand` was lost.
    if len(own) > 1:
        return Withdraw(own[1:])
    place = ranked.index(own[0])
    return WaitFor(ranked[place - 1]) if place else Win(own[0])


def prefix(member: str) -> str:
    """The start of a candidate's name: whose it is. ZooKeeper appends its sequence."""
    return f"{member}-"


def member_of(candidate: str) -> str:
    return candidate[: -SEQUENCE_DIGITS - 1]


def _sequence(candidate: str) -> str:
    return candidate[-SEQUENCE_DIGITS:]
