"""The clock guard: decides how far the clock of a shard's server is trusted. It reads no clock: times are arguments.

The guard keeps two times, both as offsets from a monotonic clock that does not stop while the host sleeps:

the *estimate*  follows the server's clock. Each reply bounds the estimate. Let a request be sent at `sent`, and let its
                reply, with the server's time S, arrive at `received`. The server's clock is then at least S - received
                and at most S + 1 - sent ahead of the monotonic clock. The guard keeps the largest lower bound and
                lowers the bound as fast as clocks drift, so the estimate is hardly ever ahead of the server. If the
                estimate is above a reply's upper bound, the server's clock went back, and the estimate is reset.
the *anchor*    is the trusted clock. It is set to the estimate every ten seconds, so it follows slow drift and slewing.
                A server that is ahead of the anchor by more than the limit has made a step: the guard *holds*. The time
                stands still until the server agrees with the anchor again or an operator accepts the server's time.

If the server's clock steps back, the guard follows immediately: that makes messages late, never early. The guard
remembers the offset that it trusted before the step. If the server later returns to this offset, its clock was
repaired, and the guard trusts it again. A step to any other time ahead is a step.

At the first claim of a leadership there is no trusted clock yet, and two other times serve as witnesses: this host's
wall clock (plus the step that an operator has accepted, which the shard stores), and the shard's high-water mark, which
is the time up to which the shard has been driven. Before a shard's first claim, the server's time at the creation of
the namespace takes the place of the mark. If the server is ahead of both witnesses by more than the limit, the guard
holds from the start, at the later of the two times. So the clocks of hosts must agree to within the limit, for example
through NTP, or an operator must accept the time. At later claims of the same leadership the anchor is the witness. The
guard cannot detect a step of a clock that server and process share, if the step was made while no process led the
shard.
"""

import logging
from math import inf
from typing import Final

from tickwheel.limits import CLOCK_GUARD_MS

# A clock that is being slewed runs fast or slow by at most 0.05 %.
DRIFT: Final = 0.0005
ANCHOR_MS: Final = 10_000

_log = logging.getLogger("tickwheel.event_process")


class ClockGuard:
    """Guards against forward steps of more than ``limit_ms`` of the server's clock."""

    def __init__(self, limit_ms: int = CLOCK_GUARD_MS, label: str = "the server's clock") -> None:
        """``label`` is the name of the clock in log lines."""
        self._limit = limit_ms
        self._label = label
        self._offset = -inf
        self._anchor = -inf
        self._anchored_at = -inf
        # The offset that was trusted before the server's clock stepped back, until the server returns to it.
        self._before_step_back = -inf
        self._observed_offset = -inf
        self._seen_at = 0.0
        self._frozen: float | None = None
        self.steps = 0

    @property
    def is_holding(self) -> bool:
        """Whether the time stands still because the server's clock is not trusted."""
        return self._frozen is not None

    @property
    def ahead_ms(self) -> int:
        """By how many ms the server's clock is ahead of the trusted clock."""
        return round(self._observed_offset - self._anchor)

    def now(self, monotonic_ms: float) -> float:
        """Return the time up to which timers may fire: the estimate, or the frozen time while the guard holds."""
        return self._offset + monotonic_ms if self._frozen is None else self._frozen

    def monotonic_at(self, time_ms: int) -> float:
        """Return the moment at which `now` reaches ``time_ms``, unless the guard holds."""
        return time_ms - self._offset

    def start(self, server_ms: int, received: float, wall_ms: float, high_ms: int | None) -> None:
        """Set the anchor from the witnesses, at the moment when the first reply was received. Call before `observe`."""
        self._anchor = self._offset = min(server_ms, max(wall_ms, high_ms or 0)) - received
        self._seen_at = received

    def observe(self, server_ms: int, sent: float, received: float) -> None:
        """Record that the server's clock read ``server_ms`` at some moment between ``sent`` and ``received``."""
        low, high = server_ms - received, server_ms + 1 - sent
        self._observed_offset = low
        # The bounds of a slow reply are too wide to prove a step or its end, so the guard keeps its state.
        ahead = (low if self._frozen is None else high - 1) - self._anchor
        if ahead > self._limit:
            if not self._has_returned(low, high):
                self._hold(received)
                return
            self._anchor = self._before_step_back
        if self._frozen is not None:
            self._frozen = None
            _log.warning("%s agrees with the trusted time again; promotion resumes", self._label)
            self._offset = low
        else:
            estimate = self._offset - (received - self._seen_at) * DRIFT
            self._offset = low if estimate > high else max(low, estimate)
        self._seen_at = received
        if received - self._anchored_at >= ANCHOR_MS:
            self._set_anchor(received)

    def accept(self) -> None:
        """Trust the server's clock as it is, on behalf of an operator."""
        if self._frozen is not None:
            _log.warning("%s was accepted, %d ms ahead; promotion resumes", self._label, self.ahead_ms)
            self._offset = self._anchor = self._observed_offset
            self._before_step_back = -inf
            self._frozen = None

    def _set_anchor(self, received: float) -> None:
        if self._offset < self._anchor - self._limit:
            self._before_step_back = max(self._before_step_back, self._anchor)
        elif self._offset >= self._before_step_back - self._limit:
            self._before_step_back = -inf
        self._anchor, self._anchored_at = self._offset, received

    def _has_returned(self, low: float, high: float) -> bool:
        """Whether the server's clock is certainly back at the time that was trusted before it stepped back."""
        return low >= self._before_step_back - self._limit and high - 1 <= self._before_step_back + self._limit

    def _hold(self, received: float) -> None:
        if self._frozen is None:
            self._frozen = self.now(received)
            self.steps += 1
            _log.error(
                "%s stepped %d ms ahead (limit %d ms): promotion is held until the clock agrees with the trusted time"
                " again, or an operator accepts the step (SIGUSR1)",
                *(self._label, self.ahead_ms, self._limit),
            )
