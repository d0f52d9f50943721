"""Leases that are known to be over because their messages are finished: their timers need no call to the server.

A message that is completed, cancelled while it runs or out of attempts leaves two timers: a retention timer, which
arrives through the inbox, and a lease timer, which is stale from then on. The cache saves filing the stale timer, or
checking the message when the timer fires. Correctness does not depend on the cache: if it lacks a lease, the script
checks the message.

A timer names its lease by 16 bits of its message's incarnation and version, so names repeat after 65,536 enqueues. The
order of the inbox keeps equal names apart: the timer of a lease arrives before the retention timer of its message, so a
lease timer that arrives after the retention timer belongs to another lease.
"""

from typing import Final

from tickwheel.storage.timer import lease_key, superseded_lease_key

# Maximum number of leases in each of two sets, about 110 bytes a lease. When the younger set is full, the older is
# dropped.
FINISHED_LEASES: Final = 150_000


class FinishedLeases:
    """The leases that ended according to the latest retention timers."""

    def __init__(self) -> None:
        self._young: set[bytes] = set()
        self._older: set[bytes] = set()

    def on_finished(self, retention_timer: bytes) -> None:
        """Record that the message of this timer is finished, so a lease of its previous version is over."""
        if len(self._young) >= FINISHED_LEASES:
            self._older, self._young = self._young, set()
        self._young.add(superseded_lease_key(retention_timer))

    def on_started(self, lease_timer: bytes) -> None:
        """Record a lease timer from the inbox: its lease is new, even if an ended lease had the same name."""
        lease = lease_key(lease_timer)
        self._young.discard(lease)
        self._older.discard(lease)

    def has(self, lease_timer: bytes) -> bool:
        """Return whether the lease of this timer is over."""
        lease = lease_key(lease_timer)
        return lease in self._young or lease in self._older
