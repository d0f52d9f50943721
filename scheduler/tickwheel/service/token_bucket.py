"""A token bucket: so many messages a second, and a burst of so many at once. No I/O, no clock of its own."""


class TokenBucket:
    """Fills at ``rate`` a second up to ``burst``. A call goes through while it is not empty, and may overdraw it.

    So a batch may be larger than the burst, and the calls after it wait until it is paid for: in any time no more goes
    through than the burst, one batch, and ``rate`` for each second.
    """

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate = rate
        self.burst = burst
        self._level = burst
        self._updated_at = now

    def take(self, count: int, now: float) -> float:
        """0 where the call goes through; else nothing is taken, and this is how many seconds later it may."""
        self._level = min(self.burst, self._level + (now - self._updated_at) * self.rate)
        self._updated_at = now
        if count and self._level <= 0:
            # A hair above empty, so that who waits just so long is not told to wait again.
            return max(-self._level, 1e-3) / self.rate
        self._level -= count
        return 0.0
