"""Finds the loops that hang: they neither wait nor come round for a lease. Their shards need another process."""

from tickwheel.election.lease_shards import LeaseLeadership


class LoopWatch:
    """Checks the leaderships of the process from time to time. All times are in ms."""

    def __init__(self, lease_ms: float) -> None:
        self._lease_ms = lease_ms
        self._checked_at = 0.0
        # The rounds of each loop that worked at the last check, and since when the loop has worked on that round.
        self._working: dict[LeaseLeadership, tuple[int, float]] = {}

    def hanging(self, leaderships: list[LeaseLeadership], now: float) -> list[LeaseLeadership]:
        """Return the leaderships whose loops hang."""
        # If this thread was late itself, the whole process was paused, and no loop could come round.
        before = {} if now - self._checked_at > self._lease_ms / 2 else self._working
        self._checked_at = now
        self._working = {}
        for leadership in leaderships:
            rounds = leadership.rounds
            if not leadership.is_waiting:
                known_rounds, since = before.get(leadership, (rounds, now))
                self._working[leadership] = (rounds, since if known_rounds == rounds else now)
        return [leadership for leadership, (_, since) in self._working.items() if now - since >= self._lease_ms]
