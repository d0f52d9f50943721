"""A token bucket: limits the rate of messages, and allows bursts. No I/O; the caller passes the time in seconds."""


class TokenBucket:
    """Fills with ``rate`` messages a second up to ``burst``. A call passes while the level is above zero, and may
    overdraw the bucket.

    So a batch may be larger than the burst; later calls then wait until the level is above zero again. In any period,
    at most the burst, one batch, and ``rate`` for each second pass.
    """

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate = rate
        self.burst = burst
        self._level = burst
        self._updated_at = now

    def take(self, count: int, now: float) -> float:
        """Take ``count`` messages and return 0 if the call passes. Otherwise take nothing, and return the number of
        seconds after which the call may be retried.
        """
        self._level = min(self.burst, self._level + (now - self._updated_at) * self.rate)
        self._updated_at = now
        if count and self._level <= 0:
            # At least a thousandth of a message, so that rounding does not reject a retry after exactly this wait.
            return max(-self._level, 1e-3) / self.rate
        self._level -= count
        return 0.0
