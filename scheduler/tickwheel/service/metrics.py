"""A service's figures for Prometheus: what `figures` counts, and how its server stands when they are asked for."""

from collections.abc import Callable
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from tickwheel.service.server import Server
from tickwheel.telemetry.metrics import MetricSpec, Samples, SpecCollector, unlabelled


def _message_counts(action: str) -> Callable[[Server], Samples]:
    return lambda server: iter(list(server.counters.messages[action].counts.items()))


_C, _G, _H = CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
_QUEUE: Final = ("namespace", "queue")
# Every figure, once; docs/operations.md explains them.
METRICS: Final[tuple[MetricSpec[Server], ...]] = (
    MetricSpec(
        *("service_calls", "Calls that have ended, by method and gRPC code", _C, ("method", "code")),
        lambda server: (
            ((method, code), count)
            for method, calls in server.counters.methods.items()
            for code, count in list(calls.codes.items())
        ),
    ),
    MetricSpec(
        *("service_call_seconds", "How long calls took; a dequeue with what it waited", _H, ("method",)),
        lambda server: (
            ((method,), calls.durations) for method, calls in server.counters.methods.items() if calls.codes
        ),
    ),
    MetricSpec(
        *("service_calls_in_flight", "Calls under way; of the streaming methods, streams open", _G, ("method",)),
        lambda server: (((method,), calls.in_flight) for method, calls in server.counters.methods.items()),
    ),
    MetricSpec(
        *("service_parked_calls", "Dequeues that wait for messages", _G, ()),
        unlabelled(lambda server: sum(namespace.parked for namespace in server.namespaces)),
    ),
    MetricSpec(
        *("service_wake_ups", "How often one of them was woken", _C, ()),
        unlabelled(lambda server: sum(namespace.woken for namespace in server.namespaces)),
    ),
    MetricSpec(
        *("service_namespaces", "Namespaces that calls have named", _G, ()),
        unlabelled(lambda server: len(server.namespaces)),
    ),
    MetricSpec("service_enqueued_messages", "Messages enqueued, new ones", _C, _QUEUE, _message_counts("enqueued")),
    MetricSpec("service_delivered_messages", "Messages delivered", _C, _QUEUE, _message_counts("delivered")),
    MetricSpec("service_completed_messages", "Messages completed", _C, _QUEUE, _message_counts("completed")),
    MetricSpec("service_failed_messages", "Messages given back by fail", _C, _QUEUE, _message_counts("failed")),
    MetricSpec("service_released_messages", "Messages given back by release", _C, _QUEUE, _message_counts("released")),
    MetricSpec("service_cancelled_messages", "Messages cancelled", _C, _QUEUE, _message_counts("cancelled")),
    MetricSpec(
        *("service_enqueue_group_messages", "How many messages of concurrent enqueues went together", _H, ()),
        unlabelled(lambda server: server.counters.group_sizes),
    ),
    MetricSpec(
        "service_processes", "Processes of the service that tell their figures", _G, (), unlabelled(lambda _: 1)
    ),
)


class ServiceMetrics(SpecCollector[Server]):
    """Collects the figures of one process."""

    def __init__(self, server: Server) -> None:
        super().__init__(lambda: server, METRICS)
