"""The figures that are told to Prometheus: names, types and labels, as its library has them."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from prometheus_client.core import Metric


def of_service() -> Iterable[Metric]:
    """Follows the modules of the service. Of a server its collector reads no more than these two."""
    from tickwheel.service.counters import Counters
    from tickwheel.service.metrics import ServiceMetrics

    server: Any = SimpleNamespace(counters=Counters(), namespaces=[])
    return ServiceMetrics(server).collect()


def of_event_process() -> Iterable[Metric]:
    """Follows the modules of the event process."""
    from tickwheel.event_process import WheelStats
    from tickwheel.event_process.metrics import ShardMetrics

    return ShardMetrics("tw", lambda: {0: WheelStats()}).collect()


def of_worker() -> Iterable[Metric]:
    """Follows the modules of the worker."""
    from tickwheel.worker.metrics import metrics_collector
    from tickwheel.worker.stats import Stats

    return metrics_collector(Stats()).collect()


def histogram_bounds() -> dict[str, list[float]]:
    """The upper bounds of what is told as a histogram."""
    from tickwheel.service.counters import Counters
    from tickwheel.worker.stats import Stats

    figures, stats = Counters(), Stats()
    return {
        "tickwheel_service_call_seconds": list(figures.methods["Enqueue"].durations.bounds),
        "tickwheel_service_enqueue_group_messages": list(figures.group_sizes.bounds),
        "tickwheel_worker_task_seconds": list(stats.run_times["queue", "task"].bounds),
        "tickwheel_worker_wait_seconds": list(stats.waits["queue", "task"].bounds),
    }


def families() -> dict[str, Any]:
    """Each figure of each process."""
    told = {"service": of_service(), "event process": of_event_process(), "worker": of_worker()}
    found: dict[str, Any] = {
        process: {each.name: _family(each) for each in figures} for process, figures in told.items()
    }
    return found | {"bounds of histograms": histogram_bounds()}


def _family(metric: Metric) -> dict[str, Any]:
    # The library keeps the names of labels to itself while there are no samples.
    return {"type": metric.type, "labels": sorted(metric._labelnames)}  # type: ignore[attr-defined]
