"""A worker's figures for Prometheus: what `stats` counts, of all its processes together. Needs the extra `metrics`."""

from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from tickwheel.telemetry.metrics import MetricSpec, SpecCollector, unlabelled
from tickwheel.worker.stats import Stats

_C, _G, _H = CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
_TASK: Final = ("queue", "task")
# Every figure, once; docs/operations.md explains them.
METRICS: Final[tuple[MetricSpec[Stats], ...]] = (
    MetricSpec(
        *("worker_tasks", "Tasks that have run, by outcome: completed, failed, rejected", _C, (*_TASK, "outcome")),
        lambda stats: iter(list(stats.tasks.items())),
    ),
    MetricSpec(
        *("worker_task_seconds", "How long they ran", _H, _TASK),
        lambda stats: iter(list(stats.run_times.items())),
    ),
    MetricSpec(
        *("worker_wait_seconds", "How long after it was due a task began, by this machine's clock", _H, _TASK),
        lambda stats: iter(list(stats.waits.items())),
    ),
    MetricSpec(
        *("worker_occurrences", "Occurrences of schedules: fired, skipped, missed, unknown", _C, ("schedule", "fate")),
        lambda stats: iter(list(stats.occurrences.items())),
    ),
    MetricSpec("worker_processes", "Processes that run", _G, (), unlabelled(lambda stats: stats.processes)),
    MetricSpec(
        *("worker_restarts", "Processes that were started in place of one that had ended", _C, ()),
        unlabelled(lambda stats: stats.restarts),
    ),
    MetricSpec(
        *("worker_kills", "Processes killed for a task that did not heed its time limit", _C, ()),
        unlabelled(lambda stats: stats.kills),
    ),
    MetricSpec("worker_renewed_leases", "Renewals of leases", _C, (), unlabelled(lambda stats: stats.renewals)),
    MetricSpec(
        *("worker_lost_leases", "Leases that were found lost when they were to be renewed", _C, ()),
        unlabelled(lambda stats: stats.lost_leases),
    ),
)


def metrics_collector(stats: Stats) -> Collector:
    """What a page of them is made of."""
    return SpecCollector(lambda: stats, METRICS)
