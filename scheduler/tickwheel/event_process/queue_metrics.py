"""Metrics of queues for Prometheus. Each sample is the part of one shard, exported by the shard's leader. So the sums
over all shards and event processes are right.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from tickwheel.event_process.queue_readings import QueueReading
from tickwheel.storage.record import State
from tickwheel.telemetry.histogram import Histogram
from tickwheel.telemetry.metrics import MetricSpec, Samples

_LABELS: Final = ("namespace", "shard", "queue")
# The upper bounds of the exported buckets, as powers of two in ms: from 1 ms to 17 minutes. The stored histogram has a
# bucket for each power.
_EXPONENTS: Final = (*range(13), 14, 16, 18, 20)
LATENESS_BOUNDS: Final = tuple(2**exponent / 1_000 for exponent in _EXPONENTS)


class QueueStats(NamedTuple):
    """The latest readings of a namespace's queues: shard, name of the queue, reading."""

    namespace: str
    readings: Sequence[tuple[int, str, QueueReading]]


def lateness_histogram(late: Sequence[int]) -> Histogram:
    """Return the exported histogram of stored buckets.

    The sum of the values is not stored: it is estimated as if the values of a bucket were evenly distributed.
    """
    histogram = Histogram(LATENESS_BOUNDS)
    for bucket, count in enumerate(late):
        if count:
            # The bounds of the stored bucket, in ms.
            lower, upper = 2**bucket // 2, 2**bucket
            histogram.add_bucket(upper / 1_000, count, count * (lower + upper) / 2_000)
    return histogram


def _messages(source: QueueStats) -> Samples:
    for shard, queue, reading in source.readings:
        for state, count in zip(State, reading.counts, strict=True):
            yield (source.namespace, str(shard), queue, state.label), count


def _errored(source: QueueStats) -> Samples:
    for shard, queue, reading in source.readings:
        yield (source.namespace, str(shard), queue), reading.errored


def _lateness(source: QueueStats) -> Samples:
    for shard, queue, reading in source.readings:
        if any(reading.late):
            yield (source.namespace, str(shard), queue), lateness_histogram(reading.late)


def _head_age(source: QueueStats) -> Samples:
    for shard, queue, reading in source.readings:
        yield (source.namespace, str(shard), queue), reading.head_age_ms / 1_000


# A test compares the table of docs/operations.md with this tuple.
QUEUE_METRICS: Final[tuple[MetricSpec[QueueStats], ...]] = (
    MetricSpec("messages", "Messages of the queue, by state", GaugeMetricFamily, (*_LABELS, "state"), _messages),
    MetricSpec(
        "errored",
        "Messages that have become Errored since the queue was created; the shard stores the number",
        CounterMetricFamily,
        _LABELS,
        _errored,
    ),
    MetricSpec(
        "queue_lateness_seconds",
        "Lateness of promoted messages since the queue was created; the sum is estimated from the buckets",
        HistogramMetricFamily,
        _LABELS,
        _lateness,
    ),
    MetricSpec(
        "head_age_seconds",
        "Time since the most urgent ready message became due, or came back to the queue; 0 if no message is ready."
        " The time includes the lateness and, in an exclusive queue, the wait for the exclusive value",
        GaugeMetricFamily,
        _LABELS,
        _head_age,
    ),
)
