"""A service's figures for Prometheus: what `figures` counts, and how its server stands when they are asked for."""

from collections.abc import Callable
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from tickwheel.service.server import Server
from tickwheel.telemetry.metrics import Collected, Samples, Told, one


def _moved(done: str) -> Callable[[Server], Samples]:
    return lambda server: iter(list(server.figures.moved[done].counts.items()))


_C, _G, _H = CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
_QUEUE: Final = ("namespace", "queue")
# Every figure, once; docs/operations.md explains them.
TOLD: Final[tuple[Told[Server], ...]] = (
    Told(
        *("service_calls", "Calls that have ended, by method and gRPC code", _C, ("method", "code")),
        lambda server: (
            ((method, code), count)
            for method, calls in server.figures.calls.items()
            for code, count in list(calls.codes.items())
        ),
    ),
    Told(
        *("service_call_seconds", "How long calls took; a dequeue with what it waited", _H, ("method",)),
        lambda server: (((method,), calls.took) for method, calls in server.figures.calls.items() if calls.codes),
    ),
    Told(
        *("service_calls_in_flight", "Calls under way; of the streaming methods, streams open", _G, ("method",)),
        lambda server: (((method,), calls.in_flight) for method, calls in server.figures.calls.items()),
    ),
    Told(
        *("service_parked_calls", "Dequeues that wait for messages", _G, ()),
        one(lambda server: sum(each.parked for each in server.namespaces)),
    ),
    Told(
        *("service_wake_ups", "How often one of them was woken", _C, ()),
        one(lambda server: sum(each.woken for each in server.namespaces)),
    ),
    Told(
        *("service_namespaces", "Namespaces that calls have named", _G, ()),
        one(lambda server: len(server.namespaces)),
    ),
    Told("service_enqueued_messages", "Messages enqueued, new ones", _C, _QUEUE, _moved("enqueued")),
    Told("service_delivered_messages", "Messages delivered", _C, _QUEUE, _moved("delivered")),
    Told("service_completed_messages", "Messages completed", _C, _QUEUE, _moved("completed")),
    Told("service_failed_messages", "Messages given back by fail", _C, _QUEUE, _moved("failed")),
    Told("service_released_messages", "Messages given back by release", _C, _QUEUE, _moved("released")),
    Told("service_cancelled_messages", "Messages cancelled", _C, _QUEUE, _moved("cancelled")),
    Told(
        *("service_enqueue_group_messages", "How many messages of concurrent enqueues went together", _H, ()),
        one(lambda server: server.figures.groups),
    ),
    Told("service_processes", "Processes of the service that tell their figures", _G, (), one(lambda _: 1)),
)


class ServiceMetrics(Collected[Server]):
    """Collects the figures of one process."""

    def __init__(self, server: Server) -> None:
        super().__init__(server, TOLD)
