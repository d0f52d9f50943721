"""When the leader of a shard counts the shard as unreachable, so that it resigns if another process can reach it."""

from math import inf
from typing import Final

# A leader whose attempts to connect to its shard fail for this time resigns.
RESIGN_AFTER_MS: Final = 3_000
# A leader also resigns if it can connect each time, but a command stays without an answer twice within this time. Once
# is not enough: if the server's clock steps back, a blocking read gets no answer, while the server answers all others.
STALLS_MS: Final = 60_000


class Reachability:
    """The errors of one leadership. All times are in ms, by the monotonic clock of the process."""

    def __init__(self, now: float) -> None:
        # The shard counts as unreachable until a claim gets a reply.
        self._unreachable_since = now
        self._stalled_at = -inf

    def is_lost_after_error(self, now: float, sent: float, *, has_answered: bool) -> bool:
        """Return whether the leader should resign after the error that has ended a connection.

        ``has_answered``: the shard has answered a claim on this connection. ``sent`` is when the last command was sent.
        """
        if not has_answered:
            return now - self._unreachable_since >= RESIGN_AFTER_MS
        if now - sent < RESIGN_AFTER_MS:
            # The connection broke while it waited for entries, which may be long after the last command.
            self._unreachable_since = now
            return False
        self._unreachable_since = sent
        is_second = now - self._stalled_at < STALLS_MS
        self._stalled_at = now
        return is_second
