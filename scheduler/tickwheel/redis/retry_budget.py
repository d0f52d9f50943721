"""How often and how long a call that got no answer is sent again."""

import logging
import time
from dataclasses import dataclass, field

from tickwheel.errors import Unavailable
from tickwheel.redis.replies import TemporaryError, raise_if_permanent
from tickwheel.redis.url import first_node_only
from tickwheel.runtime.backoff import exponential, full_jitter
from tickwheel.runtime.log_throttle import LogThrottle

log = logging.getLogger("tickwheel")


@dataclass(slots=True)
class RetryBudget:
    """When a round that got no answer is sent again: exponential back-off with full jitter, until the time is up.

    ``log_throttle`` is one for all rounds of a client: a server that is away for long fills no log.
    """

    display_url: str
    seconds: float
    log_throttle: LogThrottle
    _started: float = field(default_factory=time.monotonic)
    _count: int = 0

    def backoff_or_raise(self, error: Exception, sent: bool) -> float:
        """Seconds to wait before the next attempt; Unavailable where the time is up. What was ``sent`` may be done."""
        self._count += 1
        spent = time.monotonic() - self._started
        raise_if_permanent(error)
        cause = "put off by" if isinstance(error, TemporaryError) else "no answer from"
        if spent >= self.seconds:
            raise Unavailable(
                f"{cause} {self.display_url} in {spent:.1f} s and {self._count} attempts:"
                f" {str(error) or type(error).__name__}"
                + ("; the call may have been done, and can be sent again" if sent else "; nothing was done"),
                may_have_happened=sent,
            ) from error
        pause = full_jitter(exponential(0.02, 0.5, self._count))
        level = self.log_throttle.level(f"{cause}: {error}")
        short_url = first_node_only(self.display_url)
        log.log(level, "%s %s (attempt %d): %s; again in %.3f s", cause, short_url, self._count, error, pause)
        return min(pause, max(self.seconds - spent, 0))

    def on_answer(self) -> None:
        """The whole round was: after an attempt that was not, that is told where such trouble was."""
        if self._count and self.log_throttle.has_logged:
            self.log_throttle.has_logged = False
            log.info("answered again by %s (attempt %d)", first_node_only(self.display_url), self._count + 1)
