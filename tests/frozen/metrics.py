"""The Prometheus metrics: names, types and labels, as the client library exports them."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from prometheus_client.core import Metric


def of_service() -> Iterable[Metric]:
    """Return the metrics of the service. Its collector reads only these attributes of a server."""
    from tickwheel.service.counters import Counters
    from tickwheel.service.metrics import ServiceMetrics

    server: Any = SimpleNamespace(counters=Counters(), namespaces=[], waiting_calls=0)
    return ServiceMetrics(server).collect()


def of_event_process() -> Iterable[Metric]:
    """Return the metrics of the event process."""
    from tickwheel.event_process import WheelStats
    from tickwheel.event_process.metrics import ShardMetrics

    return ShardMetrics("tw", lambda: {0: WheelStats()}).collect()


def of_worker() -> Iterable[Metric]:
    """Return the metrics of the worker."""
    from tickwheel.worker.metrics import metrics_collector
    from tickwheel.worker.stats import Stats

    return metrics_collector(Stats()).collect()


def histogram_bounds() -> dict[str, list[float]]:
    """Return the upper bounds of the buckets of each histogram."""
    from tickwheel.event_process.queue_metrics import LATENESS_BOUNDS
    from tickwheel.service.counters import Counters
    from tickwheel.worker.stats import Stats

    counters, stats = Counters(), Stats()
    return {
        "tickwheel_queue_lateness_seconds": list(LATENESS_BOUNDS),
        "tickwheel_service_call_seconds": list(counters.methods["Enqueue"].durations.bounds),
        "tickwheel_service_enqueue_group_messages": list(counters.group_sizes.bounds),
        "tickwheel_worker_task_seconds": list(stats.run_times["queue", "task"].bounds),
        "tickwheel_worker_wait_seconds": list(stats.waits["queue", "task"].bounds),
    }


def families() -> dict[str, Any]:
    """Return each metric of each process."""
    metrics = {"service": of_service(), "event process": of_event_process(), "worker": of_worker()}
    families: dict[str, Any] = {
        process: {family.name: _family(family) for family in collected} for process, collected in metrics.items()
    }
    return families | {"bounds of histograms": histogram_bounds()}


def _family(metric: Metric) -> dict[str, Any]:
    # Without samples, the library stores the names of labels only in a private attribute.
    return {"type": metric.type, "labels": sorted(metric._labelnames)}  # type: ignore[attr-defined]
