"""The back-off and the timeout of a round without an answer."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil

from tickwheel.errors import Unavailable
from tickwheel.redis.replies import REPLICA_ANSWER_S, TemporaryError, raise_if_permanent
from tickwheel.redis.url import first_node_only
from tickwheel.runtime.backoff import exponential, full_jitter
from tickwheel.runtime.log_throttle import LogThrottle

log = logging.getLogger("tickwheel")
# A server that is not overloaded answers within this time, also at the end of the timeout.
_MIN_ANSWER_S = 0.05
# How long a call that was stopped is still retried if an attempt was sent. The attempt may have leased messages, and
# only its answer has their tokens, with which the caller can release them.
STOP_GRACE_S = 5.0


@dataclass(slots=True)
class RetryBudget:
    """The attempts of one round: exponential back-off with full jitter, until ``seconds`` are over.

    All rounds of a client share ``log_throttle``, so that a long outage does not fill the log. After ``is_stopped`` has
    returned True, there is no further attempt if none was sent, and otherwise only for STOP_GRACE_S.
    """

    display_url: str
    seconds: float
    log_throttle: LogThrottle
    is_stopped: Callable[[], bool] | None = None
    _started: float = field(default_factory=time.monotonic)
    _count: int = 0
    # The problem of the last attempt, and whether an attempt was sent.
    _problem: tuple[Exception, bool] | None = None
    # The time of the first check after the stop of the call.
    _stopped_at: float | None = None

    def limit_answer(self, answer_s: float, replicas: int) -> float:
        """Return the seconds that the next answer may take: at most ``answer_s``, and not beyond the timeout.

        If the call waits for replicas, the server may answer only after REPLICA_ANSWER_S.
        """
        minimum = REPLICA_ANSWER_S if replicas else _MIN_ANSWER_S
        spent = time.monotonic() - self._started if self._count else 0
        return min(answer_s, max(self.seconds - spent, minimum))

    def backoff_or_raise(self, error: Exception, sent: bool) -> float:
        """Return the seconds to wait before the next attempt.

        Raises Unavailable if the time is up or the call was stopped, with ``sent`` as ``may_have_happened``. Raises a
        permanent error of the server immediately.
        """
        self._count += 1
        self._problem = error, sent
        spent = time.monotonic() - self._started
        raise_if_permanent(error)
        cause = _cause(error)
        if spent >= self.seconds:
            raise self._unavailable(error, sent) from error
        self.raise_if_stopped()
        pause = full_jitter(exponential(0.02, 0.5, self._count))
        level = self.log_throttle.level(f"{cause}: {error}")
        short_url = first_node_only(self.display_url)
        ms = ceil(1_000 * pause)
        log.log(level, "%s %s (attempt %d): %s; retrying in %d ms", cause, short_url, self._count, error, ms)
        return min(pause, max(self.seconds - spent, 0))

    def raise_if_stopped(self) -> None:
        """Raise Unavailable if an attempt has failed and the call was stopped, maybe in the wait after the attempt."""
        if self._problem is None or self.is_stopped is None or not self.is_stopped():
            return
        now = time.monotonic()
        self._stopped_at = self._stopped_at or now
        error, sent = self._problem
        if not sent or now - self._stopped_at >= STOP_GRACE_S:
            raise self._unavailable(error, sent) from error

    def on_answer(self) -> None:
        """Record that the whole round was answered. If failures were logged, log the recovery once."""
        if self._count and self.log_throttle.has_logged:
            self.log_throttle.has_logged = False
            log.info("answered again by %s (attempt %d)", first_node_only(self.display_url), self._count + 1)

    def _unavailable(self, error: Exception, sent: bool) -> Unavailable:
        spent = time.monotonic() - self._started
        return Unavailable(
            f"{_cause(error)} {self.display_url} in {spent:.1f} s and {self._count} attempts:"
            f" {str(error) or type(error).__name__}"
            + ("; the call may have taken effect" if sent else "; nothing was done"),
            may_have_happened=sent,
        )


def _cause(error: Exception) -> str:
    return "temporarily refused by" if isinstance(error, TemporaryError) else "no answer from"
