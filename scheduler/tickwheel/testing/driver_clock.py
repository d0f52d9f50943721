"""A clock for the driver of a shard. The test sets its time."""

from math import inf


class ManualClock:
    """A clock that shows ``now_ms`` until the test sets another time.

    This clock replaces the driver's own clock. The scripts of the shard must use the test clock, too (`_clock_test`).
    """

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def now(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.now_ms

    def monotonic_at(self, time_ms: int) -> float:
        return time_ms

    is_holding = False
    ahead_ms = 0
    unsaved_offset = None

    def on_claimed(self, server_ms: int, high_ms: int | None, accepted_ms: int) -> None:
        pass

    def observe(self, server_ms: int) -> None:
        pass

    def next_probe(self, waiting: bool) -> float:
        return inf
