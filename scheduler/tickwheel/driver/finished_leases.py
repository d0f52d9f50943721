"""Leases that are known to be over because their messages are finished: their timers need not ask the server.

A message that is completed, cancelled while it runs or out of attempts leaves a retention timer, which the inbox brings
here, and a lease timer that is stale from then on. What is known here saves filing it, or a look at the message when it
fires. Nothing depends on it: a lease that is not known here is looked at.

A timer names its lease by 16 bits of its message's incarnation and version, so in 65,536 enqueues the same comes again.
The inbox tells them apart: it brings a lease before the end of its message, so one that comes after is another.
"""

from typing import Final

from tickwheel.storage.timer import lease_key, superseded_lease_key

# Two sets of so many leases, of about 110 bytes each; the older is forgotten when the younger is full.
FINISHED_LEASES: Final = 150_000


class FinishedLeases:
    """The leases that the last retention timers say are over."""

    def __init__(self) -> None:
        self._young: set[bytes] = set()
        self._older: set[bytes] = set()

    def on_finished(self, retention_timer: bytes) -> None:
        """The message of this timer is finished: the lease of the version before is over, if there was one."""
        if len(self._young) >= FINISHED_LEASES:
            self._older, self._young = self._young, set()
        self._young.add(superseded_lease_key(retention_timer))

    def on_started(self, lease_timer: bytes) -> None:
        """The inbox brought this lease timer: its lease is not one that ended before."""
        lease = lease_key(lease_timer)
        self._young.discard(lease)
        self._older.discard(lease)

    def has(self, lease_timer: bytes) -> bool:
        """Whether the lease of this timer is over."""
        lease = lease_key(lease_timer)
        return lease in self._young or lease in self._older
