"""When the loop of a shard waits, and for how long it has worked since its last wait."""

from tickwheel.election.election import Leadership
from tickwheel.runtime.time import monotonic_ms


class LoopWaits:
    """The waits of the loop under one leadership, which hears of them, too. The loop writes, and any thread reads."""

    def __init__(self, leadership: Leadership) -> None:
        self._leadership = leadership
        # None while the loop waits.
        self._working_since: float | None = None

    def begin_wait(self) -> None:
        """Record that the loop waits for its server or for a timer."""
        self._working_since = None
        self._leadership.begin_wait()

    def end_wait(self) -> None:
        """Record that the loop works."""
        self._working_since = monotonic_ms()
        self._leadership.end_wait()

    @property
    def working_ms(self) -> float:
        """For how long the loop has worked without a wait."""
        since = self._working_since
        return 0.0 if since is None else monotonic_ms() - since
