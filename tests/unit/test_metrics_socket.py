"""The metrics that a child serves to its program on a Unix socket: the same samples, and no page waits for long."""

import logging
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tickwheel.cli.metrics_option import sharing_metrics
from tickwheel.client.last_resort import LastResortOptions
from tickwheel.event_process import WheelStats
from tickwheel.event_process.metrics import ShardMetrics
from tickwheel.event_process.queue_readings import QueueReading
from tickwheel.telemetry import metrics_socket
from tickwheel.telemetry.metrics_server import registry_of
from tickwheel.telemetry.metrics_socket import MetricsSocket, SocketMetrics

pytestmark = pytest.mark.unit

LOG = logging.getLogger("tickwheel.worker")
ADDRESS = ("127.0.0.1", 9464)


class OwnMetrics(Collector):
    """The metrics of a program."""

    def collect(self) -> Iterator[Metric]:
        """Yield one metric."""
        yield GaugeMetricFamily("own", "of the program", value=1)


def of_shards() -> ShardMetrics:
    readings = [(0, 'jobs "1"', QueueReading(errored=3, late=(0, 2, 5), head_age_ms=1_500))]
    stats = {0: WheelStats(epoch=7, lateness_ms=12, fired_timers=3)}
    return ShardMetrics("tw", lambda: stats, queue_readings=lambda: readings)


def page(*collectors: Collector) -> list[str]:
    return generate_latest(registry_of(*collectors)).decode().splitlines()


@pytest.fixture
def path() -> Iterator[Path]:
    """The path of a socket, which the system limits to about 100 bytes."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder, "driver")


@contextmanager
def listening(path: Path, answer: Callable[[socket.socket], None]) -> Iterator[None]:
    """Listen on the path, and answer one connection in a thread."""

    def run() -> None:
        connection, _ = listener.accept()
        with connection:
            answer(connection)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = Thread(target=run)
        thread.start()
        yield
        thread.join()


def test_the_program_serves_the_samples_of_its_child(path: Path) -> None:
    with closing(MetricsSocket(path, of_shards())):
        for _ in range(2):
            lines = page(OwnMetrics(), SocketMetrics(path))
            assert 'tickwheel_shard_epoch{namespace="tw",shard="0"} 7.0' in lines
            assert 'tickwheel_errored_total{namespace="tw",queue="jobs \\"1\\"",shard="0"} 3.0' in lines
            assert [line for line in lines if not line.startswith("#")] == [
                line for line in page(OwnMetrics(), of_shards()) if not line.startswith("#")
            ]
    assert not path.exists()
    assert page(OwnMetrics(), SocketMetrics(path)) == page(OwnMetrics())


def test_metrics_without_samples_are_left_out(path: Path) -> None:
    class Empty(Collector):
        def collect(self) -> Iterator[Metric]:
            yield CounterMetricFamily("empty", "no samples", labels=["shard"])

    with closing(MetricsSocket(path, Empty())):
        assert page(SocketMetrics(path)) == []


def test_a_process_that_stands_by_has_no_metrics() -> None:
    is_driving = False
    collector = ShardMetrics("tw", lambda: {0: WheelStats()}, is_exported=lambda: is_driving)
    assert page(collector) == []
    is_driving = True
    assert page(collector) != []


def test_a_socket_that_a_killed_child_has_left_is_ignored_and_replaced(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    assert path.exists()
    assert page(OwnMetrics(), SocketMetrics(path)) == page(OwnMetrics())
    assert caplog.records == []
    with closing(MetricsSocket(path, of_shards())):
        assert len(page(SocketMetrics(path))) > 10


def test_a_child_that_hangs_does_not_keep_the_page_waiting_and_is_logged_once(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(metrics_socket, "_ANSWER_S", 0.05)
    with socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind(str(path))
        hanging.listen()
        collector = SocketMetrics(path)
        for _ in range(3):
            assert page(OwnMetrics(), collector) == page(OwnMetrics())
    assert [record.getMessage() for record in caplog.records] == [
        "the metrics page lacks the metrics of the child that drives: timed out"
    ]


def test_an_answer_that_arrives_byte_by_byte_ends(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_socket, "_ANSWER_S", 0.2)
    has_ended = False

    def trickle(connection: socket.socket) -> None:
        connection.settimeout(20)
        # The program closes the connection.
        with suppress(OSError):
            while not has_ended:
                connection.sendall(b" ")

    with listening(path, trickle):
        assert page(SocketMetrics(path)) == []
        has_ended = True


@pytest.mark.parametrize("length", [0, 1, 40, -1])
def test_an_answer_that_ends_too_early_is_ignored(path: Path, length: int) -> None:
    whole = metrics_socket._pack(of_shards())
    with listening(path, lambda connection: connection.sendall(whole[:length])):
        assert page(OwnMetrics(), SocketMetrics(path)) == page(OwnMetrics())


def test_a_program_that_does_not_read_its_answer_keeps_no_other_answer_waiting(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Large(Collector):
        def collect(self) -> Iterator[Metric]:
            yield GaugeMetricFamily("large", "x" * (1 << 20), value=1)

    # Long enough for a program that reads.
    monkeypatch.setattr(metrics_socket, "_ANSWER_S", 1.0)
    with (
        closing(MetricsSocket(path, Large())),
        socket.socket(socket.AF_UNIX) as silent,
        socket.socket(socket.AF_UNIX) as reading,
    ):
        silent.connect(str(path))
        reading.settimeout(20)
        reading.connect(str(path))
        with reading.makefile("rb") as answer:
            assert answer.read() == metrics_socket._pack(Large())


def test_a_path_that_is_too_long_is_an_error(path: Path) -> None:
    with pytest.raises(OSError, match="too long"):
        MetricsSocket(path.with_name("x" * 200), of_shards())


def test_a_program_with_metrics_has_a_private_folder_for_the_socket() -> None:
    with sharing_metrics(ADDRESS, LastResortOptions(json=True), LOG) as how:
        assert how is not None
        assert how.metrics_socket is not None
        folder = how.metrics_socket.parent
        assert folder.stat().st_mode & 0o777 == 0o700
        assert how == LastResortOptions(json=True, metrics_socket=how.metrics_socket)
    assert not folder.exists()


def test_a_program_without_metrics_or_without_a_child_has_no_socket() -> None:
    with sharing_metrics(None, LastResortOptions(), LOG) as how:
        assert how == LastResortOptions()
    with sharing_metrics(ADDRESS, None, LOG) as how:
        assert how is None


def test_a_program_without_a_folder_drives_without_metrics(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("No usable temporary directory found")

    monkeypatch.setattr("tickwheel.cli.metrics_option.TemporaryDirectory", refuse)
    with sharing_metrics(ADDRESS, LastResortOptions(), LOG) as how:
        assert how == LastResortOptions()
    assert "lack the metrics of the child that drives: No usable temporary directory" in caplog.text
