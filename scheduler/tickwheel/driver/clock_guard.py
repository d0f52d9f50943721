"""The clock guard: how far a shard's server clock is believed. Pure: every moment is an argument.

Two times are kept, both as offsets from a monotonic clock that also counts sleep:

the *estimate*  follows what the server's clock shows. Each reply bounds it: a reply showing S, asked at `sent` and
                received at `received`, puts the server between S - received and S + 1 - sent ahead of the
                monotonic clock. The largest lower bound is kept, and given up as fast as clocks drift, so the estimate
                is hardly ever ahead of the server; a contradiction (the server went back) resets it.
the *anchor*    is the clock that is trusted. It follows the estimate every ten seconds, so slow drift and slewing
                pass. A server more than the limit ahead of it has made a step: the guard holds, and time stands still
                at what it was, until the server agrees with the anchor again or an operator accepts its time.

A server that steps back is followed at once: that makes messages late, never early.

At the first claim nothing is trusted yet. The witnesses are this host's wall clock (plus what an operator has accepted,
which the shard keeps) and the shard's high-water mark, which is the time up to which the shard has already been driven.
A server ahead of both by more than the limit is not believed: the guard holds from the start, at the later of the two.
So hosts must agree to within the limit, as NTP makes them, or an operator accepts. At later claims by the same process
the anchor is the witness. What no witness can tell: a step of a clock that server and process share, made while no
process ran.
"""

import logging
from math import inf
from typing import Final

from tickwheel.limits import CLOCK_GUARD_MS

# Clocks that are slewed to the right time go wrong by half a thousandth at most.
DRIFT: Final = 0.0005
ANCHOR_MS: Final = 10_000

_log = logging.getLogger("tickwheel.event_process")


class ClockGuard:
    """Guards against forward steps of more than ``limit_ms`` of the server's clock."""

    def __init__(self, limit_ms: int = CLOCK_GUARD_MS, label: str = "the server's clock") -> None:
        """``what`` is what the log calls it."""
        self._limit = limit_ms
        self._label = label
        self._offset = -inf
        self._anchor = -inf
        self._anchored_at = -inf
        self._observed_offset = -inf
        self._seen_at = 0.0
        self._frozen: float | None = None
        self.steps = 0

    @property
    def is_holding(self) -> bool:
        """Whether time stands still because the server's clock is not believed."""
        return self._frozen is not None

    @property
    def ahead_ms(self) -> int:
        """By how much the server's clock is ahead of the one that is trusted."""
        return round(self._observed_offset - self._anchor)

    def now(self, monotonic_ms: float) -> float:
        """The bound on the shard's time."""
        return self._offset + monotonic_ms if self._frozen is None else self._frozen

    def monotonic_at(self, time_ms: int) -> float:
        """The moment at which `now` reaches the time, unless the guard holds."""
        return time_ms - self._offset

    def start(self, server_ms: int, received: float, wall_ms: float, high_ms: int | None) -> None:
        """Before the first `observe`: the witnesses of the moment in which its reply came."""
        self._anchor = self._offset = min(server_ms, max(wall_ms, high_ms or 0)) - received
        self._seen_at = received

    def observe(self, server_ms: int, sent: float, received: float) -> None:
        """The server's clock showed ``server_ms`` some time between two moments."""
        low, high = server_ms - received, server_ms + 1 - sent
        self._observed_offset = low
        # A slow reply proves little: it neither holds nor lets go.
        ahead = (low if self._frozen is None else high - 1) - self._anchor
        if ahead > self._limit:
            self._hold(received)
            return
        if self._frozen is not None:
            self._frozen = None
            _log.warning("%s agrees again; promotion goes on", self._label)
            self._offset = low
        else:
            estimate = self._offset - (received - self._seen_at) * DRIFT
            self._offset = low if estimate > high else max(low, estimate)
        self._seen_at = received
        if received - self._anchored_at >= ANCHOR_MS:
            self._anchor, self._anchored_at = self._offset, received

    def accept(self) -> None:
        """An operator says that the server's clock is right as it is."""
        if self._frozen is not None:
            _log.warning("%s was accepted, %d ms ahead", self._label, self.ahead_ms)
            self._offset = self._anchor = self._observed_offset
            self._frozen = None

    def _hold(self, received: float) -> None:
        if self._frozen is None:
            self._frozen = self.now(received)
            self.steps += 1
            _log.error(
                "%s stepped %d ms ahead (limit %d ms): promotion is held until it agrees again or an operator"
                " accepts it",
                *(self._label, self.ahead_ms, self._limit),
            )
