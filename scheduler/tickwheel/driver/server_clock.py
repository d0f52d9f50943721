"""A shard's clock in production: its server's, as far as the clock guard believes it."""

from collections.abc import Callable, Sequence

from tickwheel.driver.clock_guard import ClockGuard
from tickwheel.limits import CLOCK_GUARD_MS
from tickwheel.runtime.time import monotonic_ms, wall_ms

# The server is asked the time after so long: while held; while timers in memory wait; and in any case, so that slow
# drift is followed.
PROBE_HOLDING_MS = 250
PROBE_WAITING_MS = 5_000
PROBE_IDLE_MS = 60_000
# An idle shard is looked at within LOOK_MS, and answers.
_SIMILAR_STEPS_MS = 2 * PROBE_IDLE_MS


class ServerClock:
    """The `Clock` of a shard's driver. Whoever sends its commands says by `around` when a reply came."""

    def __init__(
        self,
        limit_ms: int = CLOCK_GUARD_MS,
        monotonic: Callable[[], float] = monotonic_ms,
        wall: Callable[[], float] = wall_ms,
        label: str = "the server's clock",
    ) -> None:
        self.guard = ClockGuard(limit_ms, label)
        self.monotonic = monotonic
        self._wall = wall
        self._limit = limit_ms
        self._started = self._accepting = False
        self._accepted_offset = self._saved_offset = 0
        self._sent = self._received = self._probed_at = 0.0
        # Steps that were accepted of others, and until when.
        self._similar_steps: Sequence[int] = ()
        self._similar_steps_until = 0.0

    def on_reply(self, sent: float, received: float) -> None:
        """The last command was sent and answered at these moments."""
        self._sent, self._received = sent, received

    def now(self) -> int:
        return int(self.guard.now(self.monotonic()))

    def monotonic_at(self, time_ms: int) -> float:
        return self._probed_at + PROBE_HOLDING_MS if self.guard.is_holding else self.guard.monotonic_at(time_ms)

    def accept(self) -> None:
        """An operator says that the server's clock is right. From any thread; it counts from the next look on."""
        self._accepting = self.guard.is_holding

    def accept_similar_steps(self, steps_ms: Sequence[int]) -> None:
        """An operator has accepted such steps of other shards' clocks. From any thread.

        This one may have made the same, and not have been looked at since: then there is nothing to accept twice.
        """
        self._similar_steps_until = self.monotonic() + _SIMILAR_STEPS_MS
        self._similar_steps = steps_ms

    @property
    def unsaved_offset(self) -> int | None:
        return None if self._accepted_offset == self._saved_offset else self._accepted_offset

    def on_claimed(self, server_ms: int, high_ms: int | None, accepted_ms: int) -> None:
        self._saved_offset = accepted_ms
        if not self._started:
            self._started = True
            self._accepted_offset = accepted_ms
            self.guard.start(server_ms, self._received, self._wall() + accepted_ms, high_ms)
        self.observe(server_ms)

    def observe(self, server_ms: int) -> None:
        self._probed_at = self._received
        self.guard.observe(server_ms, self._sent, self._received)
        if self._accepting or self._is_similar_step():
            self._accepting = False
            if self.guard.is_holding:
                self.guard.accept()
                self._accepted_offset = self._ahead_of_this_host(server_ms)
        elif self._accepted_offset and not self.guard.is_holding and self._received - self._sent < self._limit / 4:
            self._follow_accepted(self._ahead_of_this_host(server_ms))

    def needs_probe(self, waiting: bool) -> bool:
        return self.monotonic() >= self.next_probe(waiting)

    def next_probe(self, waiting: bool) -> float:
        if self.guard.is_holding:
            return self._probed_at + PROBE_HOLDING_MS
        return self._probed_at + (PROBE_WAITING_MS if waiting else PROBE_IDLE_MS)

    def _is_similar_step(self) -> bool:
        if not self._similar_steps or self.monotonic() > self._similar_steps_until:
            return False
        return self.guard.is_holding and any(
            abs(self.guard.ahead_ms - step) <= self._limit for step in self._similar_steps
        )

    def _follow_accepted(self, ahead: int) -> None:
        """Drift moves what was accepted; it is forgotten when the server's clock and this host's agree again."""
        if ahead <= self._limit:
            self._accepted_offset = 0
        elif abs(ahead - self._accepted_offset) > self._limit / 2:
            self._accepted_offset = ahead

    def _ahead_of_this_host(self, server_ms: int) -> int:
        return round(server_ms - self._wall() + self.monotonic() - self._received)
