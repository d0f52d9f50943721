"""The members of an election by lease: which of them take part now, and which shards they drive.

A member's row has a beat that the member raises several times in a lease. Whether a member takes part is judged by the
change of its row while the doctor watches, not by a clock.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tickwheel.election.lease_member import CALLS_PER_LEASE
from tickwheel.election.lease_row import NewerRow, Row
from tickwheel.errors import Forbidden
from tickwheel.operations.context import NamespaceContext
from tickwheel.plan import Plan, Request, pairs_from_flat, send_request
from tickwheel.storage.keys import election_key

# How long a row is watched at least. A member with the default session time-out writes its row every second, and one
# with the maximum every 15 s. A row of an earlier version does not contain this time.
WATCH_S, WATCH_PAUSE_S = 4.0, 0.1
# A call can be late by this time.
_LATE_S = 2.0
ASSIGNMENT = b"assignment"

Rows = Mapping[bytes, bytes]


@dataclass(frozen=True, slots=True)
class LeaseMembers:
    """The members, by their ids.

    ``active`` are those that have written their rows while the doctor watched, and ``unresponsive`` the others. The
    rows of later versions of Tickwheel cannot be read: ``newer`` of them were written. ``unreadable`` rows are of no
    version.
    """

    active: Mapping[str, Row] = field(default_factory=dict)
    unresponsive: Mapping[str, Row] = field(default_factory=dict)
    newer: int = 0
    unreadable: int = 0
    watched_s: float = WATCH_S
    """How long the unresponsive members were watched."""

    def leader_of(self, shard: int, holder: str) -> str:
        """Return the name of the active member ``holder`` if the member drives the shard, else an empty text."""
        row = self.active.get(holder)
        return row.name if row is not None and shard in row.drives else ""


def read_member_rows(context: NamespaceContext) -> Plan[Rows | None]:
    """Return the stored rows of the members; None if this user may not read them."""
    try:
        reply = yield from send_request(Request(0, command=("HGETALL", election_key(context.namespace))))
    except Forbidden:
        return None
    return {member: row for member, row in pairs_from_flat(reply.value) if member != ASSIGNMENT}


def watch_members(read: Callable[[], Rows | None]) -> LeaseMembers | None:
    """Read the rows until each member has written its row. Return None if they cannot be read.

    Each row is watched for a quarter of its lease, and a little longer. If there are no rows, return at once.
    """
    first = read()
    if first is None:
        return None
    rows, start = first, time.monotonic()
    while waiting := _unchanged(first, rows):
        watched_s = max(_watch_s(first[member]) for member in waiting)
        if time.monotonic() - start >= watched_s:
            return _members(rows, waiting, watched_s)
        time.sleep(WATCH_PAUSE_S)
        rows = read() or {}
    return _members(rows, waiting, WATCH_S)


def _watch_s(packed: bytes) -> float:
    """Return the time within which the member of this row writes the row again, in seconds."""
    try:
        lease_ms = Row.unpack(packed).lease_ms
    except ValueError:
        return WATCH_S
    return max(WATCH_S, lease_ms / 1_000 / CALLS_PER_LEASE + _LATE_S)


def _unchanged(first: Rows, rows: Rows) -> set[bytes]:
    return {member for member, row in rows.items() if first.get(member) == row}


def _members(rows: Rows, unresponsive: set[bytes], watched_s: float) -> LeaseMembers:
    parsed: dict[bytes, Row] = {}
    newer = unreadable = 0
    for member, row in rows.items():
        try:
            parsed[member] = Row.unpack(row)
        except NewerRow:
            newer += member not in unresponsive
        except ValueError:
            unreadable += 1
    active, not_active = (
        {
            member.decode(errors="replace"): row
            for member, row in parsed.items()
            if (member in unresponsive) == is_unresponsive
        }
        for is_unresponsive in (False, True)
    )
    return LeaseMembers(active, not_active, newer, unreadable, watched_s)
