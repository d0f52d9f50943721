"""Every metric is exported to Prometheus in base units, and the operations page lists all metrics. An event process
exports its metrics for each shard.
"""

import re
import socket
import urllib.request
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily

from services.process import free_port
from tickwheel import InvalidArgument
from tickwheel.event_process import WheelStats
from tickwheel.event_process.metrics import METRICS, ShardMetrics, ShardStats
from tickwheel.event_process.queue_metrics import QUEUE_METRICS
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.service.metrics import METRICS as SERVICE_METRICS
from tickwheel.telemetry import metrics
from tickwheel.telemetry.metrics import MetricSpec
from tickwheel.telemetry.metrics_server import registry_of, start_metrics_server
from tickwheel.worker.metrics import METRICS as WORKER_METRICS

pytestmark = pytest.mark.unit


PAGE = (Path(__file__).parents[2] / "docs/operations.md").read_text()


OF_SHARDS = [spec for spec in METRICS if "shard" in spec.labels]
LABELLED: dict[str, tuple[MetricSpec[Any], ...]] = {
    "queue": QUEUE_METRICS,
    "service": SERVICE_METRICS,
    "worker": WORKER_METRICS,
}


def name_of(spec: MetricSpec[Any]) -> str:
    """Return the name of a metric in Prometheus."""
    return f"tickwheel_{spec.name}{'_total' if spec.family is CounterMetricFamily else ''}"


def table() -> str:
    """Return the table of metrics of the event process as the operations page contains it."""
    rows = "".join(f"| `{name_of(spec)}` | {spec.help} |\n" for spec in METRICS)
    return f"| metric | meaning |\n|---|---|\n{rows}"


def labelled_table(specs: tuple[MetricSpec[Any], ...]) -> str:
    """Return the table of metrics of queues, of the service, or of workers, as the operations page contains it."""
    rows = "".join(
        f"| `{name_of(spec)}` | {', '.join(f'`{label}`' for label in spec.labels) or '–'} | {spec.help} |\n"
        for spec in specs
    )
    return f"| metric | labels | meaning |\n|---|---|---|\n{rows}"


def test_every_metric_is_exported_once() -> None:
    def values(stats: WheelStats) -> dict[str, Any]:
        samples = {spec.name: list(spec.samples(ShardStats("tw", {0: stats}))) for spec in OF_SHARDS}
        return {name: value for name, [(_, value)] in samples.items()}

    before = values(WheelStats())
    metrics_of_fields = []
    for field in fields(WheelStats):
        stats = WheelStats()
        setattr(stats, field.name, 1)
        metrics_of_fields.append([name for name, value in values(stats).items() if value != before[name]])
    assert sorted(metrics_of_fields) == sorted([spec.name] for spec in OF_SHARDS)


def test_the_operations_page_lists_every_metric() -> None:
    assert PAGE.partition("<!-- begin: metrics -->\n")[2].partition("<!-- end -->")[0] == table()


@pytest.mark.parametrize("of", LABELLED)
def test_the_operations_page_lists_every_metric_of_queues_of_the_service_and_of_workers(of: str) -> None:
    table_of_page = PAGE.partition(f"<!-- begin: {of} metrics -->\n")[2].partition("<!-- end -->")[0]
    assert table_of_page == labelled_table(LABELLED[of])


def test_the_operations_page_uses_the_names_that_prometheus_shows() -> None:
    named = set(re.findall(r"`(tickwheel_\w+)", PAGE))
    labelled = {name_of(spec) for specs in LABELLED.values() for spec in specs}
    assert named == labelled | {name_of(spec) for spec in METRICS}
    # The page does not use the internal names.
    assert not set(re.findall(r"`(\w+)`", PAGE)) & {field.name for field in fields(WheelStats)}


def test_metrics_are_served_for_each_shard_in_base_units() -> None:
    port = free_port()
    health = {0: WheelStats(epoch=7, lateness_ms=12, fired_timers=3), 5: WheelStats(held=True)}
    stop = start_metrics_server("127.0.0.1", port, ShardMetrics("tw", lambda: health, lambda: 4))
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
    finally:
        stop()
    assert 'tickwheel_shard_epoch{namespace="tw",shard="0"} 7.0' in lines
    assert 'tickwheel_lateness_seconds{namespace="tw",shard="0"} 0.012' in lines
    assert 'tickwheel_fired_timers_total{namespace="tw",shard="0"} 3.0' in lines
    assert 'tickwheel_clock_held{namespace="tw",shard="5"} 1.0' in lines
    assert 'tickwheel_unreadable_nodes_total{namespace="tw"} 4.0' in lines


def fail(*_: object) -> Any:
    raise ValueError("a bug")


@pytest.mark.parametrize("fails", ["samples", "read"])
def test_a_metric_that_cannot_be_computed_hides_no_other_metric_and_is_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    monkeypatch.setattr(metrics, "_log_throttle", LogThrottle())
    broken: MetricSpec[int] = MetricSpec("broken", "A metric with a bug", CounterMetricFamily, (), fail)
    good: MetricSpec[int] = MetricSpec(
        "good", "A metric", CounterMetricFamily, (), metrics.unlabelled(lambda source: source)
    )
    collector = metrics.SpecCollector(fail if fails == "read" else lambda: 3, (broken, good))
    for _ in range(2):
        lines = generate_latest(registry_of(collector)).decode().splitlines()
        assert ("tickwheel_good_total 3.0" in lines) == (fails == "samples")
    [record] = caplog.records
    assert record.message.startswith("the metrics page lacks ")


def test_an_address_in_use_is_a_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidArgument, match=f"127.0.0.1:{port}"):
            start_metrics_server("127.0.0.1", port, ShardMetrics("tw", dict))
