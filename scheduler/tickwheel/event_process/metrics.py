"""An event process's figures for Prometheus: read from its shards' counters when they are asked for, kept nowhere."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tickwheel.driver.stats import WheelStats
from tickwheel.telemetry.metrics_server import start_metrics_server

Health = Callable[[], dict[int, WheelStats]]


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """How a figure of `WheelStats` is told. ``scale`` turns it into Prometheus' base unit."""

    field: str
    name: str
    help: str
    is_counter: bool = False
    scale: float = 1


# Every figure, once; docs/operations.md explains them.
METRICS = (
    MetricSpec("epoch", "shard_epoch", "Epoch under which this process drives the shard; 0 where it does not"),
    MetricSpec("in_memory", "wheel_timers_in_memory", "Timers of the current and next slots that wait in memory"),
    MetricSpec("unfiled", "wheel_timers_unfiled", "Timers read from the inbox that are not in a slot yet"),
    MetricSpec("slots", "wheel_slots", "Slots of the wheel in use"),
    MetricSpec("inbox_timers", "inbox_timers", "Timers read from the inbox", is_counter=True),
    MetricSpec("filed_timers", "filed_timers", "Timers put into slots", is_counter=True),
    MetricSpec("fired_timers", "fired_timers", "Timers that fired, stale ones too", is_counter=True),
    MetricSpec(
        "early_answers", "early_answers", "Timers whose message was not due by the server's clock", is_counter=True
    ),
    MetricSpec(
        "unknown_queue_timers", "unknown_queue_timers", "Timers of queues that home does not know", is_counter=True
    ),
    MetricSpec("lateness_ms", "lateness_seconds", "How late the last batch of messages was promoted", scale=1e-3),
    MetricSpec("lateness_max_ms", "lateness_max_seconds", "The worst of it since the process started", scale=1e-3),
    MetricSpec("held", "clock_held", "1 while the clock guard holds promotion"),
    MetricSpec("clock_steps", "clock_steps", "Steps of the server's clock that the guard has seen", is_counter=True),
    MetricSpec("relayed", "relayed_transitions", "Transitions that Kafka has acknowledged", is_counter=True),
    MetricSpec("outbox_entries", "outbox_entries", "Entries of events that wait for the relay"),
    MetricSpec("outbox_bytes", "outbox_bytes", "Their bytes, which count against the outbox's limit"),
    MetricSpec("outbox_dropped", "outbox_dropped_transitions", "Transitions dropped at the limit, since ever"),
    MetricSpec("outbox_age_ms", "outbox_age_seconds", "How long the oldest entry of the outbox has waited", scale=1e-3),
    MetricSpec(
        "sink_acknowledged",
        "sink_acknowledged_messages",
        "Messages that a sink's broker has acknowledged",
        is_counter=True,
    ),
    MetricSpec("sink_refused", "sink_refused_messages", "Messages that a sink's broker has refused", is_counter=True),
    MetricSpec("sink_in_flight", "sink_in_flight_messages", "Messages leased for a sink whose broker has not answered"),
)


class ShardMetrics(Collector):
    """Collects the figures of all shards of one event process."""

    def __init__(self, namespace: str, health: Health) -> None:
        self._namespace = namespace
        self._health = health

    def collect(self) -> Iterator[Metric]:
        """Each figure, a sample for each shard."""
        shards = self._health()
        for spec in METRICS:
            family = CounterMetricFamily if spec.is_counter else GaugeMetricFamily
            metric = family(f"tickwheel_{spec.name}", spec.help, labels=["namespace", "shard"])
            for shard, stats in shards.items():
                metric.add_metric([self._namespace, str(shard)], getattr(stats, spec.field) * spec.scale)
            yield metric


def serve_metrics(host: str, port: int, namespace: str, health: Health) -> Callable[[], None]:
    """Serve the figures over HTTP, in a thread of its own; answers what stops it. Raises InvalidArgument where the
    address cannot be listened on.
    """
    return start_metrics_server(host, port, ShardMetrics(namespace, health))
