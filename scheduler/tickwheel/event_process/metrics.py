"""An event process's figures for Prometheus: read from its shards' counters when they are asked for, kept nowhere."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tickwheel.driver.stats import WheelStats
from tickwheel.telemetry.metrics_server import serve_page

Health = Callable[[], dict[int, WheelStats]]


@dataclass(frozen=True, slots=True)
class Told:
    """How a figure of `WheelStats` is told. ``scale`` turns it into Prometheus' base unit."""

    field: str
    name: str
    help: str
    counts: bool = False
    scale: float = 1


# Every figure, once; docs/operations.md explains them.
TOLD = (
    Told("epoch", "shard_epoch", "Epoch under which this process drives the shard; 0 where it does not"),
    Told("in_memory", "wheel_timers_in_memory", "Timers of the current and next slots that wait in memory"),
    Told("unfiled", "wheel_timers_unfiled", "Timers read from the inbox that are not in a slot yet"),
    Told("slots", "wheel_slots", "Slots of the wheel in use"),
    Told("inbox_timers", "inbox_timers", "Timers read from the inbox", counts=True),
    Told("filed_timers", "filed_timers", "Timers put into slots", counts=True),
    Told("fired_timers", "fired_timers", "Timers that fired, stale ones too", counts=True),
    Told("early_answers", "early_answers", "Timers whose message was not due by the server's clock", counts=True),
    Told("unknown_queue_timers", "unknown_queue_timers", "Timers of queues that home does not know", counts=True),
    Told("lateness_ms", "lateness_seconds", "How late the last batch of messages was promoted", scale=1e-3),
    Told("lateness_max_ms", "lateness_max_seconds", "The worst of it since the process started", scale=1e-3),
    Told("held", "clock_held", "1 while the clock guard holds promotion"),
    Told("clock_steps", "clock_steps", "Steps of the server's clock that the guard has seen", counts=True),
    Told("relayed", "relayed_transitions", "Transitions that Kafka has acknowledged", counts=True),
    Told("outbox_entries", "outbox_entries", "Entries of events that wait for the relay"),
    Told("outbox_bytes", "outbox_bytes", "Their bytes, which count against the outbox's limit"),
    Told("outbox_dropped", "outbox_dropped_transitions", "Transitions dropped at the limit, since ever"),
    Told("outbox_age_ms", "outbox_age_seconds", "How long the oldest entry of the outbox has waited", scale=1e-3),
    Told(
        "sink_acknowledged", "sink_acknowledged_messages", "Messages that a sink's broker has acknowledged", counts=True
    ),
    Told("sink_refused", "sink_refused_messages", "Messages that a sink's broker has refused", counts=True),
    Told("sink_in_flight", "sink_in_flight_messages", "Messages leased for a sink whose broker has not answered"),
)


class ShardMetrics(Collector):
    """Collects the figures of all shards of one event process."""

    def __init__(self, namespace: str, health: Health) -> None:
        self._namespace = namespace
        self._health = health

    def collect(self) -> Iterator[Metric]:
        """Each figure, a sample for each shard."""
        shards = self._health()
        for told in TOLD:
            family = CounterMetricFamily if told.counts else GaugeMetricFamily
            metric = family(f"tickwheel_{told.name}", told.help, labels=["namespace", "shard"])
            for shard, stats in shards.items():
                metric.add_metric([self._namespace, str(shard)], getattr(stats, told.field) * told.scale)
            yield metric


def serve_metrics(host: str, port: int, namespace: str, health: Health) -> Callable[[], None]:
    """Serve the figures over HTTP, in a thread of its own; answers what stops it. Raises InvalidArgument where the
    address cannot be listened on.
    """
    return serve_page(host, port, ShardMetrics(namespace, health))
