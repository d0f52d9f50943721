"""Metrics of an event process for Prometheus, read from the counters of its shards and its election at each scrape."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tickwheel.driver.stats import WheelStats
from tickwheel.event_process.queue_metrics import QUEUE_METRICS, QueueStats
from tickwheel.event_process.queue_readings import QueueReading
from tickwheel.telemetry.metrics import MetricSpec, Samples, SpecCollector

Health = Callable[[], dict[int, WheelStats]]


class ShardStats(NamedTuple):
    """The counters of all shards, and of the election, at one moment."""

    namespace: str
    shards: dict[int, WheelStats]
    unreadable_nodes: int = 0


def _gauge(field: str, name: str, help: str, scale: float = 1) -> MetricSpec[ShardStats]:
    """Return the metric of a field of `WheelStats`. ``scale`` converts the field to Prometheus' base unit."""

    def samples(source: ShardStats) -> Samples:
        for shard, stats in source.shards.items():
            yield (source.namespace, str(shard)), getattr(stats, field) * scale

    return MetricSpec(name, help, GaugeMetricFamily, ("namespace", "shard"), samples)


def _counter(field: str, name: str, help: str) -> MetricSpec[ShardStats]:
    return replace(_gauge(field, name, help), family=CounterMetricFamily)


# All metrics of shards. A test compares the table of docs/operations.md with this tuple.
METRICS: Final[tuple[MetricSpec[ShardStats], ...]] = (
    _gauge("epoch", "shard_epoch", "Epoch under which this process drives the shard; 0 if it does not drive the shard"),
    _gauge(
        "in_memory",
        "wheel_timers_in_memory",
        "Timers of the current and the next slots, which the leader keeps in memory",
    ),
    _gauge("unfiled", "wheel_timers_unfiled", "Timers read from the inbox that are not in a slot yet"),
    _gauge("slots", "wheel_slots", "Slots of the wheel in use"),
    _counter("inbox_timers", "inbox_timers", "Timers read from the inbox"),
    _counter("filed_timers", "filed_timers", "Timers written to slots"),
    _counter("fired_timers", "fired_timers", "Timers that fired, including stale ones"),
    _counter("early_answers", "early_answers", "Fired timers whose message was not due yet by the server's clock"),
    _counter(
        "unknown_queue_timers",
        "unknown_queue_timers",
        "Due timers of queues that the metadata shard does not contain, counted again every 10 s",
    ),
    _counter(
        "corrupt_entries",
        "corrupt_entries",
        "Entries of the inbox, and parts of slots, that were skipped because they are not timers",
    ),
    _counter(
        "corrupt_values",
        "corrupt_values",
        "Values of the shard's clock that were replaced because no event process writes such values",
    ),
    _counter(
        "corrupt_events",
        "corrupt_events",
        "Entries of the outbox that the relay skipped because they are not events of a queue",
    ),
    _gauge("lateness_ms", "lateness_seconds", "Maximum lateness in the last batch of promoted messages", scale=1e-3),
    _gauge("lateness_max_ms", "lateness_max_seconds", "Maximum lateness since the process started", scale=1e-3),
    _gauge("held", "clock_held", "1 while the clock guard holds promotion"),
    _counter("clock_steps", "clock_steps", "Forward steps of the server's clock that the clock guard detected"),
    _counter("relayed", "relayed_transitions", "Transitions that Kafka has acknowledged"),
    _gauge("outbox_entries", "outbox_entries", "Entries of the outbox that wait for the relay"),
    _gauge(
        "outbox_bytes",
        "outbox_bytes",
        "Bytes of the outbox entries that wait for the relay; the setting `outbox_limit` limits them",
    ),
    _gauge(
        "outbox_dropped",
        "outbox_dropped_transitions",
        "Transitions dropped from a full outbox since the shard was created",
    ),
    _gauge("outbox_age_ms", "outbox_age_seconds", "Age of the oldest entry of the outbox", scale=1e-3),
    _counter("sink_acknowledged", "sink_acknowledged_messages", "Messages that a sink's broker has acknowledged"),
    _counter("sink_refused", "sink_refused_messages", "Messages that a sink's broker has rejected"),
    _gauge(
        "sink_in_flight", "sink_in_flight_messages", "Messages that were sent to a sink's broker and not answered yet"
    ),
    MetricSpec(
        "unreadable_nodes",
        "Reads of nodes in ZooKeeper whose data was ignored because no event process writes such data",
        CounterMetricFamily,
        ("namespace",),
        lambda source: iter([((source.namespace,), source.unreadable_nodes)]),
    ),
)


class ShardMetrics(Collector):
    """Collects the metrics of one event process: of all its shards, of its election, and of the queues on the shards
    that it leads.
    """

    def __init__(
        self,
        namespace: str,
        health: Health,
        unreadable_nodes: Callable[[], int] = lambda: 0,
        queue_readings: Callable[[], Sequence[tuple[int, str, QueueReading]]] = tuple,
        is_exported: Callable[[], bool] = lambda: True,
    ) -> None:
        """``queue_readings`` returns the latest readings: shard, name of the queue, reading. While ``is_exported``
        returns False, nothing is collected.
        """
        self._is_exported = is_exported
        self._shards = SpecCollector(lambda: ShardStats(namespace, health(), unreadable_nodes()), METRICS)
        self._queues = SpecCollector(lambda: QueueStats(namespace, queue_readings()), QUEUE_METRICS)

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with its samples."""
        if self._is_exported():
            yield from self._shards.collect()
            yield from self._queues.collect()
