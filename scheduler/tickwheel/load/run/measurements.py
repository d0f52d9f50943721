"""Measurements of a process: HdrHistograms of latencies, counters, and their course over time.

Each process has its own measurements. They are sent to the parent as JSON and merged there. Latencies are real time,
not the accelerated time of the scenario's day; the histograms store microseconds.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from hdrh.histogram import HdrHistogram

# One hour, with three significant digits.
_MAX_US, _DIGITS = 3_600_000_000, 3
# Latencies over time are counted on a logarithmic scale with this number of steps for each doubling. A plot cannot
# display smaller differences.
_STEPS = 8


class Measurements:
    """Collects measurements. ``moment_s`` is real time since the start of the run.

    `latency_at` drops values of the warm-up.
    """

    def __init__(self, bucket_s: float, warm_up_s: float = 0.0) -> None:
        self.bucket_s = bucket_s
        self._warm_up_s = warm_up_s
        self.histograms: dict[str, HdrHistogram] = {}
        self.counts: Counter[str] = Counter()
        self.over_time: dict[str, Counter[int]] = {}
        """Name -> time bucket -> sum, in thousandths."""
        self.spread: dict[str, dict[int, Counter[int]]] = {}
        """Name -> time bucket -> logarithmic step -> count."""
        self.errors: Counter[str] = Counter()
        """Number of errors of each kind. `error_texts` has the first text of each kind."""
        self.error_texts: dict[str, str] = {}

    def latency(self, name: str, seconds: float) -> None:
        """Record one latency, without its time."""
        histogram = self.histograms.get(name)
        if histogram is None:
            histogram = self.histograms[name] = HdrHistogram(1, _MAX_US, _DIGITS)
        histogram.record_value(min(max(round(seconds * 1e6), 0), _MAX_US))

    def latency_at(self, name: str, seconds: float, moment_s: float) -> None:
        """Record one latency, also in the course over time."""
        if moment_s < self._warm_up_s:
            return
        self.latency(name, seconds)
        step = round(_STEPS * math.log2(max(seconds * 1e6, 1)))
        buckets = self.spread.setdefault(name, {})
        buckets.setdefault(int(moment_s // self.bucket_s), Counter())[step] += 1

    def add(self, name: str, moment_s: float, amount: float = 1.0) -> None:
        """Add an amount to a sum over time."""
        self.over_time.setdefault(name, Counter())[int(moment_s // self.bucket_s)] += round(amount * 1_000)

    def span(self, name: str, since_s: float, until_s: float) -> None:
        """Add a duration in seconds to the sums over time. Each time bucket gets the part that is in the bucket."""
        while since_s < until_s:
            end_s = min(until_s, (since_s // self.bucket_s + 1) * self.bucket_s)
            # Because of rounding, the end of a very short bucket can be at or before its start. The loop then ends.
            self.add(name, since_s, end_s - since_s)
            if end_s <= since_s:
                return
            since_s = end_s

    def error(self, error: BaseException) -> None:
        """Count an error."""
        kind = type(error).__name__
        self.errors[kind] += 1
        self.error_texts.setdefault(kind, str(error))

    def document(self) -> dict[str, Any]:
        """Return all measurements as JSON values."""
        return {
            "histograms": {name: histogram.encode().decode() for name, histogram in self.histograms.items()},
            "counts": dict(self.counts),
            "over_time": {name: list(buckets.items()) for name, buckets in self.over_time.items()},
            "spread": {
                name: [(bucket, list(steps.items())) for bucket, steps in buckets.items()]
                for name, buckets in self.spread.items()
            },
            "errors": dict(self.errors),
            "error_texts": self.error_texts,
        }

    def merge(self, document: Mapping[str, Any]) -> None:
        """Add the measurements of another process."""
        for name, encoded in document["histograms"].items():
            self.histograms.setdefault(name, HdrHistogram(1, _MAX_US, _DIGITS)).decode_and_add(encoded)
        self.counts.update(document["counts"])
        self.errors.update(document["errors"])
        self.error_texts = document["error_texts"] | self.error_texts
        for name, buckets in document["over_time"].items():
            self.over_time.setdefault(name, Counter()).update(dict(buckets))
        for name, spread in document["spread"].items():
            for bucket, steps in spread:
                self.spread.setdefault(name, {}).setdefault(bucket, Counter()).update(dict(steps))

    def percentile(self, name: str, share: float) -> float | None:
        """Return a percentile in seconds; None if nothing was recorded."""
        histogram = self._recorded(name)
        return None if histogram is None else float(histogram.get_value_at_percentile(share * 100)) / 1e6

    def _recorded(self, name: str) -> HdrHistogram | None:
        histogram = self.histograms.get(name)
        return histogram if histogram is not None and histogram.get_total_count() else None

    def combined(self, names: Sequence[str]) -> HdrHistogram:
        """Return one histogram of the latencies of several kinds, in microseconds."""
        histogram = HdrHistogram(1, _MAX_US, _DIGITS)
        for name in names:
            if name in self.histograms:
                histogram.add(self.histograms[name])
        return histogram

    def mean(self, name: str) -> float | None:
        histogram = self._recorded(name)
        return None if histogram is None else float(histogram.get_mean_value()) / 1e6

    def summary(self, name: str) -> dict[str, float | int] | None:
        """Return the row of a report, in milliseconds; None if nothing was recorded."""
        histogram = self._recorded(name)
        if histogram is None:
            return None
        shares = {"p50": 50, "p90": 90, "p95": 95, "p99": 99, "p99.9": 99.9}
        summary: dict[str, float | int] = {"count": int(histogram.get_total_count())}
        summary |= {f"{key}_ms": histogram.get_value_at_percentile(share) / 1e3 for key, share in shares.items()}
        return summary | {
            "max_ms": histogram.get_max_value() / 1e3,
            "mean_ms": round(histogram.get_mean_value() / 1e3, 3),
        }

    def series(self, name: str, share: float) -> list[tuple[float, float]]:
        """Return a percentile over time: pairs of moment and seconds."""
        points = []
        for bucket, steps in sorted(self.spread.get(name, {}).items()):
            wanted, passed = share * steps.total(), 0
            for step, count in sorted(steps.items()):
                passed += count
                if passed >= wanted:
                    points.append(((bucket + 0.5) * self.bucket_s, 2 ** (step / _STEPS) / 1e6))
                    break
        return points

    def rate(self, name: str) -> list[tuple[float, float]]:
        """Return the rate of the amounts that `add` recorded: pairs of moment and amount per second of real time."""
        return [
            ((bucket + 0.5) * self.bucket_s, amount / 1_000 / self.bucket_s)
            for bucket, amount in sorted(self.over_time.get(name, {}).items())
        ]
