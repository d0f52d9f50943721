"""Whether processes take part in the election by lease of a namespace: they drive it, or would drive it soon.

`tickwheel namespace delete` and `tickwheel shards reset-epoch` refuse then. Processes that drive shards are found by
their connections, too (`operations.shard_status`), but those that stand by have none.
"""

from collections.abc import Mapping
from typing import Final

from tickwheel.errors import DataLoss
from tickwheel.operations.context import NamespaceContext
from tickwheel.plan import Pause, Plan, Request, pairs_from_flat, send_request
from tickwheel.storage.keys import election_key

# With the default session time-out, a member writes its row every second.
WATCH_S: Final = 2.5
_PAUSE_S: Final = 0.25
_ASSIGNMENT: Final = b"assignment"

Rows = Mapping[bytes, bytes]


def has_election_members(context: NamespaceContext) -> Plan[bool]:
    """Return whether a process writes its row. Without rows, the plan returns at once, otherwise after up to WATCH_S.

    A row that stays the same is usually of a process that was killed. A process with a long session time-out is not
    found, but its next call is rejected if the namespace is being deleted (`lua/attend_election.lua`). Raises Forbidden
    if the user may not read the election.
    """
    first = yield from read_election_rows(context)
    waited_s = 0.0
    while first and waited_s < WATCH_S:
        yield Pause(_PAUSE_S)
        waited_s += _PAUSE_S
        rows = yield from read_election_rows(context)
        if any(first.get(member) != row for member, row in rows.items()):
            return True
    return False


def read_election_rows(context: NamespaceContext) -> Plan[Rows]:
    """Return the row of each member. Raises Forbidden if the user may not read the election."""
    try:
        reply = yield from send_request(Request(0, command=("HGETALL", election_key(context.namespace))))
    except DataLoss:
        # Another program has changed the type of the key. No process can take part.
        return {}
    return {member: row for member, row in pairs_from_flat(reply.value) if member != _ASSIGNMENT}
