"""A histogram in plain numbers, cheap to update. `metrics` exports it to Prometheus."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

# Upper bounds of the buckets for durations, in seconds.
SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Histogram:
    """Counts values by bucket. A bucket has an inclusive upper bound; the last bucket, `+Inf`, has no bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def add_bucket(self, bound: float, count: int, total: float) -> None:
        """Add a bucket of another histogram: ``count`` values up to ``bound``, whose sum is ``total``."""
        self.counts[bisect_left(self.bounds, bound)] += count
        self.total += total

    def buckets(self) -> list[tuple[str, float]]:
        """Return (upper bound, number of values up to it) for each bucket, cumulatively, as Prometheus expects."""
        bounds = [*(f"{float(bound):g}" for bound in self.bounds), "+Inf"]
        return list(zip(bounds, accumulate(self.counts), strict=True))
