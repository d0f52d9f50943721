"""A call of an election by lease: what a member writes for the others, and what the reply shows."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tickwheel.election.lease_row import Row
from tickwheel.election.stored_assignment import StoredAssignment


class Mode(StrEnum):
    """What a call does with the member's own row."""

    JOIN = "join"  # writes the row
    KEEP = "keep"  # writes the row if there is one: other members may have removed it
    LEAVE = "leave"  # removes the row


@dataclass(frozen=True, slots=True)
class Attendance:
    """A call of the script `attend_election`.

    ``row`` is the member's own row, and ``announces`` whether the other members must hear of it at once. ``removals``
    are the members that have died, each with the row that this member has seen. ``proposal`` replaces the assignment
    ``seen``, if that is still the stored one. ``is_first`` marks the first call on a connection.
    """

    mode: Mode
    row: Row
    announces: bool
    removals: list[tuple[str, bytes]]
    seen: StoredAssignment
    proposal: StoredAssignment | None
    is_first: bool


@dataclass(frozen=True, slots=True)
class Attended:
    """The reply: whether the member had a row before the call, then all rows and the assignment after the call."""

    had_row: bool
    rows: Mapping[str, bytes]
    assignment: StoredAssignment
