"""Metrics of the service for Prometheus: the values of `counters`, and gauges that are read from the `Server` object
on each scrape.
"""

from collections.abc import Callable
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from tickwheel.service.server import Server
from tickwheel.telemetry.metrics import MetricSpec, Samples, SpecCollector, unlabelled


def _message_counts(action: str) -> Callable[[Server], Samples]:
    return lambda server: iter(list(server.counters.messages[action].counts.items()))


_C, _G, _H = CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
_QUEUE: Final = ("namespace", "queue")
# docs/operations.md lists the same metrics.
METRICS: Final[tuple[MetricSpec[Server], ...]] = (
    MetricSpec(
        *("service_calls", "Calls that ended, by method and status code", _C, ("method", "code")),
        lambda server: (
            ((method, code), count)
            for method, calls in server.counters.methods.items()
            for code, count in list(calls.codes.items())
        ),
    ),
    MetricSpec(
        *("service_call_seconds", "Duration of calls; the duration of a dequeue includes its wait", _H, ("method",)),
        lambda server: (
            ((method,), calls.durations) for method, calls in server.counters.methods.items() if calls.codes
        ),
    ),
    MetricSpec(
        *("service_calls_in_flight", "Calls in flight; for streaming methods, open streams", _G, ("method",)),
        lambda server: (((method,), calls.in_flight) for method, calls in server.counters.methods.items()),
    ),
    MetricSpec(
        *("service_parked_calls", "Calls that take a place of --max-waiting: calls with a wait, and streams", _G, ()),
        unlabelled(lambda server: server.waiting_calls),
    ),
    MetricSpec(
        *("service_wake_ups", "Wake-ups of calls that wait for messages", _C, ()),
        unlabelled(lambda server: sum(namespace.wakeups.wakeup_count for namespace in server.namespaces)),
    ),
    MetricSpec(
        *("service_namespaces", "Namespaces that calls have opened", _G, ()),
        unlabelled(lambda server: len(server.namespaces)),
    ),
    MetricSpec("service_enqueued_messages", "New messages enqueued", _C, _QUEUE, _message_counts("enqueued")),
    MetricSpec("service_delivered_messages", "Messages delivered", _C, _QUEUE, _message_counts("delivered")),
    MetricSpec("service_completed_messages", "Messages completed", _C, _QUEUE, _message_counts("completed")),
    MetricSpec("service_failed_messages", "Messages failed by their workers", _C, _QUEUE, _message_counts("failed")),
    MetricSpec(
        "service_released_messages", "Messages released by their workers", _C, _QUEUE, _message_counts("released")
    ),
    MetricSpec("service_cancelled_messages", "Messages cancelled", _C, _QUEUE, _message_counts("cancelled")),
    MetricSpec(
        *("service_enqueue_group_messages", "Number of messages that the service enqueues in one group", _H, ()),
        unlabelled(lambda server: server.counters.group_sizes),
    ),
    MetricSpec("service_processes", "Processes of the service that report metrics", _G, (), unlabelled(lambda _: 1)),
)


class ServiceMetrics(SpecCollector[Server]):
    """Collects the metrics of one process."""

    def __init__(self, server: Server) -> None:
        super().__init__(lambda: server, METRICS)
