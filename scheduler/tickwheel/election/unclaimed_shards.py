"""When a member of the last resort may claim shards that no process has ever claimed.

The first claim decides the kind of election of a namespace. In a new namespace, the event processes of an operator,
with lock files or ZooKeeper, may start a little later than the workers. So a member of the last resort claims such
shards only after a time in which nobody else has claimed a shard.

There is one time for the whole namespace. If each shard had its own, another member that starts and ends again and
again would move shards each time, and the member would wait for the last of them without end.
"""

from collections.abc import Mapping
from typing import Final

from tickwheel.storage.fence import StoredClaim

# How long a member of the last resort leaves shards that nobody has claimed to event processes.
UNCLAIMED_MS: Final = 15_000.0


class UnclaimedShards:
    """How long a namespace has been seen without a claim. All times are on the member's monotonic clock, in ms."""

    def __init__(self, kind: str) -> None:
        """``kind`` is the member's kind of election."""
        self._kind = kind
        # Since when all claims that the member has read are missing. None if it has read none yet, or another one.
        self._since: float | None = None
        self._answered_at = 0.0
        self._may_claim = False

    def on_answer(self, now: float, *, is_first: bool) -> None:
        """Take note that the server has answered.

        The time before the first answer on a connection (``is_first``) does not count: perhaps nobody could claim a
        shard, because the server was unreachable. The time before the connection was lost still counts. Otherwise, a
        server that stalls again and again would never be driven.
        """
        if is_first and self._since is not None:
            self._since += now - self._answered_at
        self._answered_at = now

    def on_claims(self, claims: Mapping[int, StoredClaim | None], now: float, *, is_driven: bool) -> None:
        """Take over the claims of the shards that the member may claim now; None for a claim that cannot be read.

        ``is_driven``: a member of the same election drives shards of the namespace, so its kind is decided. If the
        claims are forgotten later, the time restarts.
        """
        kinds = {"" if claim is None else claim.election for claim in claims.values()}
        self._answered_at = now
        if is_driven or not kinds <= {""}:
            self._since = None
        elif kinds and self._since is None:
            self._since = now
        has_waited = self._since is not None and now - self._since >= UNCLAIMED_MS
        # One claim by lease has decided the kind of the namespace, and one of another kind, too.
        self._may_claim = is_driven or self._kind in kinds or has_waited

    @property
    def may_claim(self) -> bool:
        """Whether the member may claim the unclaimed shards of the last call of `on_claims`."""
        return self._may_claim
