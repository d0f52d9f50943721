"""Finds out that nobody drives a namespace any more, for a program that drains and has no child (`last_resort.py`).

A leader that ends releases its shards, and another process claims them soon. A leader that was killed releases nothing,
and an idle shard does not show this. But if no other process is left, nobody writes a row in the election any more. The
times are measured on this program's monotonic clock, so no clock of the server takes part.
"""

from collections.abc import Callable, Mapping
from typing import Final

from tickwheel.client.driver_watch import Signs, read_signs
from tickwheel.election.lease_options import SESSION_TIMEOUT
from tickwheel.election.lease_row import Row
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.namespace import read_namespace
from tickwheel.operations.removal.election_members import Rows, read_election_rows
from tickwheel.plan import Plan
from tickwheel.runtime.time import monotonic_ms

# A member writes its row several times in this time, unless its row has a longer one.
_LEASE_MS: Final = 1_000 * SESSION_TIMEOUT.total_seconds()


class LeaderWatch:
    """Compares each check with the checks before. The user of the server must have the rights of a leader."""

    def __init__(self, namespace: str, clock: Callable[[], float] = monotonic_ms) -> None:
        """``clock`` is the monotonic clock, in ms."""
        self._context = NamespaceContext(namespace)
        self._clock = clock
        # The signs of the shards whose leaders had released them at the last check.
        self._released: dict[int, Signs] = {}
        # The rows of the election at the last check, and since when they are unchanged.
        self._rows: Rows | None = None
        self._since = 0.0

    def check(self) -> Plan[bool]:
        """Return whether nobody drives a shard: since the last check, or because all other processes were killed."""
        if not (yield from read_namespace(self._context)):
            return False
        signs = yield from read_signs(self._context)
        rows = yield from read_election_rows(self._context)
        return self.judge(signs, rows, self._clock())

    def judge(self, signs: Mapping[int, Signs], rows: Rows, now: float) -> bool:
        """Return the result of `check` for these signs and rows, which were read at ``now``."""
        before = self._released
        self._released = {shard: own for shard, own in signs.items() if own.fence and not own.is_claimed}
        if rows != self._rows:
            self._rows, self._since = rows, now
        return bool(before.items() & self._released.items()) or now - self._since >= _longest_lease_ms(rows)


def _longest_lease_ms(rows: Rows) -> float:
    return max([_LEASE_MS, *map(_lease_ms, rows.values())])


def _lease_ms(row: bytes) -> int:
    """Return the lease of the member with this row; 0 if the row does not contain it."""
    try:
        return Row.unpack(row).lease_ms
    except ValueError:
        return 0
