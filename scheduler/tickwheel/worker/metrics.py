"""The metrics of a worker for Prometheus: the counts of `stats`, over all processes. Needs the extra `metrics`."""

from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from tickwheel.telemetry.metrics import MetricSpec, SpecCollector, unlabelled
from tickwheel.worker.stats import Stats

_C, _G, _H = CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
_TASK: Final = ("queue", "task")
# Each metric is defined once, here. docs/operations.md explains the metrics.
METRICS: Final[tuple[MetricSpec[Stats], ...]] = (
    MetricSpec(
        *("worker_tasks", "Tasks that ended, by outcome: completed, failed, rejected", _C, (*_TASK, "outcome")),
        lambda stats: iter(list(stats.tasks.items())),
    ),
    MetricSpec(
        *("worker_task_seconds", "Run times of tasks", _H, _TASK),
        lambda stats: iter(list(stats.run_times.items())),
    ),
    MetricSpec(
        *(
            "worker_wait_seconds",
            "Time from the due time of a task until its first attempt starts, by the worker's clock",
            _H,
            _TASK,
        ),
        lambda stats: iter(list(stats.waits.items())),
    ),
    MetricSpec(
        *(
            "worker_occurrences",
            "Occurrences of schedules, by fate: fired, skipped, missed, unknown",
            _C,
            ("schedule", "fate"),
        ),
        lambda stats: iter(list(stats.occurrences.items())),
    ),
    MetricSpec("worker_processes", "Worker processes that run now", _G, (), unlabelled(lambda stats: stats.processes)),
    MetricSpec(
        *("worker_restarts", "Worker processes started to replace a process that had ended", _C, ()),
        unlabelled(lambda stats: stats.restarts),
    ),
    MetricSpec(
        *("worker_kills", "Worker processes killed because a task ignored its time limit", _C, ()),
        unlabelled(lambda stats: stats.kills),
    ),
    MetricSpec("worker_renewed_leases", "Leases that were renewed", _C, (), unlabelled(lambda stats: stats.renewals)),
    MetricSpec(
        *("worker_lost_leases", "Leases that were lost before their renewal", _C, ()),
        unlabelled(lambda stats: stats.lost_leases),
    ),
)


def metrics_collector(stats: Stats) -> SpecCollector[Stats]:
    """Return the Prometheus collector of these metrics."""
    return SpecCollector(lambda: stats, METRICS)
