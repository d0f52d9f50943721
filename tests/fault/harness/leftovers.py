"""Keys that still exist although their messages have ended or were deleted."""

import re
from typing import Any

from tests.fault.harness.system_under_test import NAMESPACE, SystemUnderTest

# The keys of a namespace without messages, and the additional keys of ended messages.
_STAYS = r"clock|election|events|inbox|namespace|queues|q:[^:]+:(config|counts|lateness)"
_ENDED = _STAYS + r"|messages|bodies|slots|w[2-5]:\d+|session:.+"


def of_ended_messages(system: SystemUnderTest) -> list[str]:
    """Return keys that only unfinished messages have: indexes, locks, parked groups."""
    leftovers: set[str] = set()
    for server in system.place.servers:
        with server.client(decode_responses=False) as client:
            if client.info("replication")["role"] == "master":
                leftovers.update(_other_than(_ENDED, client))
    return sorted(leftovers)


def of_no_messages(system: SystemUnderTest) -> list[str]:
    """Return keys that only messages, timers and calls have, and counters that are not zero."""
    with system.place.client() as client:
        keys = _keys(client)
        leftovers = _other_than(_STAYS, client)
        leftovers += [key for key in keys if key.endswith(":inbox") and client.xlen(key)]
        leftovers += [key for key in keys if key.endswith(":counts") and any(map(int, client.hvals(key)))]
    return leftovers


def _other_than(names: str, client: Any) -> list[str]:
    return [key for key in _keys(client) if not re.fullmatch(names, key.partition("}:")[2])]


def _keys(client: Any) -> list[str]:
    return [key.decode() for key in client.scan_iter(match=f"{NAMESPACE}:*", count=1_000)]
