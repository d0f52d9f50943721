"""What a process of a run measured: HdrHistograms of latencies, counters, and how both went over time.

Each process has its own; they travel as JSON and are added up. Latencies are of real time, in microseconds inside.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from hdrh.histogram import HdrHistogram

# One hour, three digits.
_MAX_US, _DIGITS = 3_600_000_000, 3
# A finer logarithm than any eye sees in a plot: eight steps for each doubling.
_STEPS = 8


class Measurements:
    """Records until it is read. ``moment_s`` is real time since the run began; latencies count once it is warm."""

    def __init__(self, bucket_s: float, warm_up_s: float = 0.0) -> None:
        self.bucket_s = bucket_s
        self._warm_up_s = warm_up_s
        self.histograms: dict[str, HdrHistogram] = {}
        self.counts: Counter[str] = Counter()
        self.over_time: dict[str, Counter[int]] = {}
        """Name -> bucket of time -> sum, in thousandths."""
        self.spread: dict[str, dict[int, Counter[int]]] = {}
        """Name -> bucket of time -> step of the logarithm -> how many."""
        self.errors: Counter[str] = Counter()
        """By kind, and of each kind the text that came first."""
        self.error_texts: dict[str, str] = {}

    def latency(self, name: str, seconds: float) -> None:
        """One more of a kind."""
        histogram = self.histograms.get(name)
        if histogram is None:
            histogram = self.histograms[name] = HdrHistogram(1, _MAX_US, _DIGITS)
        histogram.record_value(min(max(round(seconds * 1e6), 0), _MAX_US))

    def latency_at(self, name: str, seconds: float, moment_s: float) -> None:
        """The same, and it is part of what is shown over time."""
        if moment_s < self._warm_up_s:
            return
        self.latency(name, seconds)
        step = round(_STEPS * math.log2(max(seconds * 1e6, 1)))
        buckets = self.spread.setdefault(name, {})
        buckets.setdefault(int(moment_s // self.bucket_s), Counter())[step] += 1

    def add(self, name: str, moment_s: float, amount: float = 1.0) -> None:
        """So much of something at a time."""
        self.over_time.setdefault(name, Counter())[int(moment_s // self.bucket_s)] += round(amount * 1_000)

    def span(self, name: str, since_s: float, until_s: float) -> None:
        """Something lasted: its seconds, to each bucket its part."""
        while since_s < until_s:
            end_s = min(until_s, (since_s // self.bucket_s + 1) * self.bucket_s)
            # A bucket so short that its end is no later than its start ends the walk.
            self.add(name, since_s, end_s - since_s)
            if end_s <= since_s:
                return
            since_s = end_s

    def error(self, error: BaseException) -> None:
        """Something went wrong."""
        kind = type(error).__name__
        self.errors[kind] += 1
        self.error_texts.setdefault(kind, str(error))

    def document(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
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
        """Add what another process measured."""
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
        """Seconds; None of none."""
        histogram = self.histograms.get(name)
        if histogram is None or not histogram.get_total_count():
            return None
        return float(histogram.get_value_at_percentile(share * 100)) / 1e6

    def combined(self, names: Sequence[str]) -> HdrHistogram:
        """The latencies of several kinds, in microseconds."""
        histogram = HdrHistogram(1, _MAX_US, _DIGITS)
        for name in names:
            if name in self.histograms:
                histogram.add(self.histograms[name])
        return histogram

    def mean(self, name: str) -> float | None:
        histogram = self.histograms.get(name)
        if histogram is None or not histogram.get_total_count():
            return None
        return float(histogram.get_mean_value()) / 1e6

    def summary(self, name: str) -> dict[str, float | int] | None:
        """How a report has it: milliseconds. None of none."""
        histogram = self.histograms.get(name)
        if histogram is None or not histogram.get_total_count():
            return None
        shares = {"p50": 50, "p90": 90, "p95": 95, "p99": 99, "p99.9": 99.9}
        summary: dict[str, float | int] = {"count": int(histogram.get_total_count())}
        summary |= {f"{key}_ms": histogram.get_value_at_percentile(share) / 1e3 for key, share in shares.items()}
        return summary | {
            "max_ms": histogram.get_max_value() / 1e3,
            "mean_ms": round(histogram.get_mean_value() / 1e3, 3),
        }

    def series(self, name: str, share: float) -> list[tuple[float, float]]:
        """A percentile over time: (moment, seconds)."""
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
        """What was added, for each second of the run: (moment, amount)."""
        return [
            ((bucket + 0.5) * self.bucket_s, amount / 1_000 / self.bucket_s)
            for bucket, amount in sorted(self.over_time.get(name, {}).items())
        ]
