"""A worker's figures for Prometheus: what `stats` counts, of all its processes together. Needs the extra `metrics`."""

from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from tickwheel.telemetry.metrics import Collected, Told, one
from tickwheel.worker.stats import Stats

_C, _G, _H = CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
_TASK: Final = ("queue", "task")
# Every figure, once; docs/operations.md explains them.
TOLD: Final[tuple[Told[Stats], ...]] = (
    Told(
        *("worker_tasks", "Tasks that have run, by outcome: completed, failed, rejected", _C, (*_TASK, "outcome")),
        lambda stats: iter(list(stats.tasks.items())),
    ),
    Told(
        *("worker_task_seconds", "How long they ran", _H, _TASK),
        lambda stats: iter(list(stats.run_times.items())),
    ),
    Told(
        *("worker_wait_seconds", "How long after it was due a task began, by this machine's clock", _H, _TASK),
        lambda stats: iter(list(stats.waits.items())),
    ),
    Told(
        *("worker_occurrences", "Occurrences of schedules: fired, skipped, missed, unknown", _C, ("schedule", "fate")),
        lambda stats: iter(list(stats.occurrences.items())),
    ),
    Told("worker_processes", "Processes that run", _G, (), one(lambda stats: stats.processes)),
    Told(
        *("worker_restarts", "Processes that were started in place of one that had ended", _C, ()),
        one(lambda stats: stats.restarts),
    ),
    Told(
        *("worker_kills", "Processes killed for a task that did not heed its time limit", _C, ()),
        one(lambda stats: stats.kills),
    ),
    Told("worker_renewed_leases", "Renewals of leases", _C, (), one(lambda stats: stats.renewals)),
    Told(
        *("worker_lost_leases", "Leases that were found lost when they were to be renewed", _C, ()),
        one(lambda stats: stats.lost_leases),
    ),
)


def figures(stats: Stats) -> Collector:
    """What a page of them is made of."""
    return Collected(stats, TOLD)
