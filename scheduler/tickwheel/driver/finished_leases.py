"""Leases that are known to be over because their messages are finished: their timers need no call to the server.

When a lease ends because its message is completed or cancelled, or becomes Errored, the message has two timers: a new
retention timer, which arrives through the inbox, and the timer of the lease, which is stale from then on. This module
remembers the lease. So the driver need not file the stale timer. If the timer is already filed, the driver need not
call a script when the timer fires. If the module has forgotten a lease, the script checks the message.

The module believes every retention timer of the inbox without reading the record. So if someone who is no program of
Tickwheel writes a retention timer for a message that runs, the lease of the message does not end. `tickwheel doctor`
names such a message.

A timer names its lease by the queue, the message, and the lowest 16 bits of both the incarnation and the version of the
message. The incarnation counts the enqueues of the shard. So if an id is enqueued again exactly 65,536 enqueues later,
the name of a lease can repeat. The order of the inbox distinguishes equal names: the timer of a lease arrives before
the retention timer of the message, so a lease timer that arrives after the retention timer belongs to another lease.
"""

from typing import Final

from tickwheel.storage.timer import lease_key, superseded_lease_key

# Maximum number of leases in each of two sets, about 110 bytes a lease. When the younger set is full, the older set is
# dropped.
FINISHED_LEASES: Final = 150_000


class FinishedLeases:
    """The leases that ended according to the latest retention timers."""

    def __init__(self) -> None:
        self._young: set[bytes] = set()
        self._older: set[bytes] = set()

    def on_finished(self, retention_timer: bytes) -> None:
        """Record that the message of this timer is finished, so the lease of the message's previous version is over."""
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
