"""The page of a load run formats its document as text, and needs no other file."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.unit.load_scenarios import one_queue
from tickwheel.load.capacity.advice import advise
from tickwheel.load.capacity.hourly_needs import CapacityTarget
from tickwheel.load.report import report
from tickwheel.load.run.measurements import Measurements
from tickwheel.load.run.run_result import RunResult, Sample
from tickwheel.model.results import Lateness

pytestmark = pytest.mark.unit

NAME = "<script>alert(1)</script>"


def outcome() -> RunResult:
    """Return the result of a run of two seconds."""
    result = RunResult(
        replace(one_queue(rate=5.0), about=NAME, length_s=2.0, speed_up=2.0), Measurements(0.5), NAME, "load-1"
    )
    counts = dict.fromkeys(("invisible", "pending", "running", "completed", "cancelled", "errored"), 0)
    result.samples = [
        Sample(float(n), {"q": counts | {"pending": n}}, {"q": Lateness({4: n}, {}, 0)}) for n in range(3)
    ]
    for n in range(20):
        result.measurements.latency_at("enqueue", 0.001 * n, 0.1 * n)
        result.measurements.latency_at("wait/q", 0.002 * n, 0.1 * n)
        result.measurements.latency("start/q", 0.003 * n)
        result.measurements.span("busy/w", 0.1 * n, 0.1 * n + 0.05)
    result.measurements.error(ValueError(NAME))
    result.seconds = 2.0
    return result


def test_the_page_is_one_file_and_all_of_it_is_text() -> None:
    run = outcome()
    page = report.render_page(report.build_document(run, advise(run.scenario, CapacityTarget(), run)))
    assert "<script>" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 3
    assert page.count("data:image/svg+xml;base64,") == 6
    assert re.findall(r'(?:src|href)="(?!data:)', page) == []


def test_equal_measurements_produce_an_equal_page() -> None:
    run = outcome()
    document = report.build_document(run, advise(run.scenario, CapacityTarget(), run))
    assert report.render_page(document) == report.render_page(document)


def test_waits_are_reported_in_scenario_time_and_calls_in_real_time() -> None:
    run = outcome()
    document = report.build_document(run, advise(run.scenario, CapacityTarget(), run))
    queue = document["run"]["queues"]["q"]
    assert queue["measured"]["wait"]["p50_ms"] == pytest.approx(18, rel=0.01)
    assert queue["wait_s"]["p50"] == pytest.approx(2 * 0.018, rel=0.01)
    assert document["run"]["calls"]["enqueue"]["count"] == 20


def test_the_measurements_of_two_processes_are_added_up() -> None:
    one, other = Measurements(0.5), outcome().measurements
    one.latency_at("enqueue", 1.0, 0.1)
    one.merge(other.document())
    assert one.histograms["enqueue"].get_total_count() == 21
    assert one.percentile("enqueue", 1.0) == pytest.approx(1.0, rel=0.01)
    assert sum(busy * 0.5 for _, busy in one.rate("busy/w")) == pytest.approx(20 * 0.05, rel=0.02)
    assert all(earlier < later for (earlier, _), (later, _) in pairwise(one.series("wait/q", 0.95)))
    assert one.errors == {"ValueError": 1}


def test_measurements_during_the_warm_up_are_not_counted() -> None:
    meter = Measurements(0.5, warm_up_s=2.0)
    for n in range(4):
        meter.latency_at("enqueue", 0.001, float(n))
    assert meter.histograms["enqueue"].get_total_count() == 2


def test_a_harness_that_could_not_keep_up_is_reported_as_the_bottleneck() -> None:
    run = outcome()
    assert run.bottlenecks == []
    run.cpu = {"producer": 0.97}
    run.measurements.latency("lag", 0.3)
    assert run.bottlenecks == ["process 'producer' used 97 % of a core", "the producer was 300 ms late (p99)"]


def test_lateness_counts_messages_of_the_run_only() -> None:
    run = outcome()
    run.samples = [replace(run.samples[1], lateness={"q": Lateness({1: 10, 4: 1}, {2: 5}, 7)}), run.samples[2]]
    run.samples[1].lateness["q"].promoted.update({1: 12})
    assert run.lateness("q").promoted == {1: 2, 4: 1}
