"""Metric specifications. Each metric is defined once, in a table; the Prometheus collector is made from the table, and
a test compares `docs/operations.md` with the table.

Needs the extra `metrics`.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tickwheel.runtime.log_fields import log_fields
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.telemetry.histogram import Histogram

S = TypeVar("S")
Samples = Iterator[tuple[tuple[str, ...], float | Histogram]]
_log = logging.getLogger("tickwheel")
_log_throttle = LogThrottle()


@dataclass(frozen=True, slots=True)
class MetricSpec(Generic[S]):
    """One metric: its name without the prefix `tickwheel_`, help text, type and labels.

    ``samples`` takes the source, the object whose values the metric exports. It returns the label values and the value
    of each sample.
    """

    name: str
    help: str
    family: type[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]
    labels: tuple[str, ...]
    samples: Callable[[S], Samples]


def unlabelled(value: Callable[[S], float | Histogram]) -> Callable[[S], Samples]:
    """Return the ``samples`` of a metric without labels, which has one value."""
    return lambda source: iter([((), value(source))])


class SpecCollector(Collector, Generic[S]):
    """Collects the metrics of one source. On each scrape, ``read`` returns the source."""

    def __init__(self, read: Callable[[], S], specs: Sequence[MetricSpec[S]]) -> None:
        self._read = read
        self._specs = specs

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with its samples. Leave out and log those that cannot be computed, because of a bug: the
        other metrics of the page show what happens.
        """
        try:
            source = self._read()
        except Exception as error:
            _log_bug("some metrics", error)
            return
        for spec in self._specs:
            try:
                metric = _make_metric(spec, source)
            except Exception as error:
                _log_bug(f"the metric {spec.name}", error)
            else:
                yield metric


def _log_bug(missing: str, error: Exception) -> None:
    problem = f"the metrics page lacks {missing}"
    if _log_throttle.should_log(f"{problem}: {error!r}"):
        extra = log_fields("unhandled error", problem=problem)
        _log.error("%s, because of a bug (repeats are throttled)", problem, exc_info=error, extra=extra)


def _make_metric(spec: MetricSpec[S], source: S) -> Metric:
    metric = spec.family(f"tickwheel_{spec.name}", spec.help, labels=spec.labels)
    for labels, value in spec.samples(source):
        if isinstance(metric, HistogramMetricFamily):
            assert isinstance(value, Histogram)
            metric.add_metric(labels, value.buckets(), value.total)
        else:
            assert not isinstance(value, Histogram)
            metric.add_metric(labels, value)
    return metric
