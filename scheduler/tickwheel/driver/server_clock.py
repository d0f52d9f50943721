"""The clock of a shard in production: the clock of the shard's server, as far as the clock guard trusts that clock."""

from collections.abc import Callable, Sequence

from tickwheel.driver.clock_guard import ClockGuard
from tickwheel.limits import CLOCK_GUARD_MS
from tickwheel.runtime.time import monotonic_ms, wall_ms

# Intervals at which the driver reads the server's clock: while the guard holds; while timers in memory wait; and in all
# other cases, to follow slow drift.
PROBE_HOLDING_MS = 250
PROBE_WAITING_MS = 5_000
PROBE_IDLE_MS = 60_000
# How long a step that was accepted on another shard is accepted here, too. Within PROBE_IDLE_MS, even the driver of an
# idle shard reads the clock. The factor leaves time for the reply.
_SIMILAR_STEPS_MS = 2 * PROBE_IDLE_MS


class ServerClock:
    """The `Clock` of a shard's driver. The sender of the driver's commands calls `on_reply` for each reply."""

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
        self._label = label
        self._started = False
        # The guard whose step an operator has accepted. A new guard does not accept it.
        self._guard_to_accept: ClockGuard | None = None
        self._accepted_offset = self._saved_offset = 0
        self._sent = self._received = self._probed_at = 0.0
        # Steps that were accepted on other shards, and the moment until which they count here.
        self._similar_steps: Sequence[int] = ()
        self._similar_steps_until = 0.0

    def reset(self) -> None:
        """Forget the trusted time and the accepted step. The next claim sets both, as in a new process.

        Call when a leadership ends. Until the next one begins, the server's clock may drift or step, and another
        leader may store an accepted step. ``guard.steps`` continues to count.
        """
        # A new guard, because `accept_clock` reads the guard in another thread.
        guard = ClockGuard(self._limit, self._label)
        guard.steps = self.guard.steps
        self.guard = guard
        self._started = False
        self._accepted_offset = self._saved_offset = 0

    def on_reply(self, sent: float, received: float) -> None:
        """Record when the last command was sent and when its reply was received."""
        self._sent, self._received = sent, received

    def now(self) -> int:
        return int(self.guard.now(self.monotonic()))

    @property
    def is_holding(self) -> bool:
        return self.guard.is_holding

    @property
    def ahead_ms(self) -> int:
        return self.guard.ahead_ms

    def monotonic_at(self, time_ms: int) -> float:
        return self._probed_at + PROBE_HOLDING_MS if self.guard.is_holding else self.guard.monotonic_at(time_ms)

    def accept(self) -> None:
        """Trust the server's clock from the next probe on, on behalf of an operator. Call from any thread."""
        guard = self.guard
        self._guard_to_accept = guard if guard.is_holding else None

    def accept_similar_steps(self, steps_ms: Sequence[int]) -> None:
        """Also accept a step of this clock if it is similar to a step accepted on another shard. Call from any thread.

        This server may have made the same step, but the driver may not have read the server's clock since then. Without
        this call, the operator would have to accept the step a second time.
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
        if self._guard_to_accept is self.guard or self._is_similar_step():
            self._guard_to_accept = None
            if self.guard.is_holding:
                self.guard.accept()
                self._accepted_offset = self._ahead_of_this_host(server_ms)
        elif self._accepted_offset and not self.guard.is_holding and self._received - self._sent < self._limit / 4:
            self._follow_accepted(self._ahead_of_this_host(server_ms))

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
        """Adapt the accepted offset to drift. Reset the offset when the clocks of server and host agree again."""
        if ahead <= self._limit:
            self._accepted_offset = 0
        elif abs(ahead - self._accepted_offset) > self._limit / 2:
            self._accepted_offset = ahead

    def _ahead_of_this_host(self, server_ms: int) -> int:
        return round(server_ms - self._wall() + self.monotonic() - self._received)
