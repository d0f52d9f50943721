"""The port of `--metrics` needs no token. Clients that send or read nothing take neither threads nor many file
descriptors of the process, and keep no scrape waiting.
"""

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread

import pytest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.process import free_port
from services.serving_program import SERVE, ServingProgram
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.telemetry import metrics_server
from tickwheel.telemetry.metrics_server import start_metrics_server
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.security

HALF_A_REQUEST = b"GET /metrics HTTP/1.1\r\n"
SILENT = 300
# The server's connections, and the listening sockets and pipes that a process may open meanwhile.
DESCRIPTORS = metrics_server._CONNECTIONS + 20


class LargePage(Collector):
    """A page that does not fit into the buffers of a connection."""

    def collect(self) -> Iterator[Metric]:
        """Yield one metric with a help text of 8 MiB."""
        yield GaugeMetricFamily("large", "x" * (8 << 20), value=1)


@pytest.fixture
def connections() -> Iterator[ExitStack]:
    """Close the connections at the end of the test."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def port() -> Iterator[int]:
    """Serve the large page."""
    number = free_port()
    stop = start_metrics_server("127.0.0.1", number, LargePage())
    try:
        yield number
    finally:
        stop()


def connect(connections: ExitStack, port: int, request: bytes) -> socket.socket:
    """Send ``request``. Read nothing of the answer."""
    connection = connections.enter_context(socket.create_connection(("127.0.0.1", port), 10))
    with suppress(ConnectionError):
        connection.sendall(request)
    return connection


def scrape(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return bytes(answer.read())


def is_closed(connection: socket.socket) -> bool:
    """Return whether the server has closed the connection."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def threads_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def descriptors_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@pytest.mark.parametrize("options", [(), ("--processes", "2")], ids=["one process", "two processes"])
def test_silent_connections_do_not_use_up_the_threads_and_descriptors_of_the_service(
    tickwheel_server: PrivateServer, namespace: str, tmp_path: Path, connections: ExitStack, options: tuple[str, ...]
) -> None:
    port = free_port()
    metrics = ("--namespace", namespace, "--metrics", f"127.0.0.1:{port}")
    with ServingProgram(tmp_path, *SERVE, tickwheel_server.url, *metrics, *options) as service:
        eventually(lambda: b"tickwheel_service_processes" in scrape(port), "the service reports metrics")
        threads, descriptors = threads_of(service.pid), descriptors_of(service.pid)
        silent = [connect(connections, port, HALF_A_REQUEST) for _ in range(SILENT)]
        answers: list[bytes] = []
        scrapers = [Thread(target=lambda: answers.append(scrape(port))) for _ in range(2)]
        for scraper in scrapers:
            scraper.start()
        for scraper in scrapers:
            scraper.join()
        assert [b"tickwheel_service_processes" in answer for answer in answers] == [True, True]
        eventually(
            lambda: sum(map(is_closed, silent)) >= SILENT - metrics_server._CONNECTIONS,
            "the service has closed the connections for which it has no place",
        )
        # A service starts threads for its first calls, too.
        assert threads_of(service.pid) < threads + 20
        assert descriptors_of(service.pid) < descriptors + DESCRIPTORS
        with Tickwheel(service.url, namespace=namespace) as client:
            client.queue("q").enqueue()


def test_a_request_that_arrives_byte_by_byte_ends(
    port: int, connections: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_server, "_REQUEST_S", 0.1)
    connection = connect(connections, port, HALF_A_REQUEST)

    def next_byte_ends() -> bool:
        with suppress(BlockingIOError, ConnectionError):
            connection.send(b"a")
        return is_closed(connection)

    eventually(next_byte_ends, "the server closes the connection")


def test_a_client_that_does_not_read_its_answer_is_disconnected(
    port: int, connections: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_server, "_ANSWER_S", 0.1)
    connection = connect(connections, port, HALF_A_REQUEST + b"\r\n")

    def is_disconnected() -> bool:
        try:
            connection.send(b"a")
        except ConnectionError:
            return True
        return False

    eventually(is_disconnected, "the server closes the connection")


def test_clients_that_do_not_read_their_answers_keep_no_scrape_waiting(port: int, connections: ExitStack) -> None:
    for _ in range(2 * metrics_server._CONNECTIONS):
        connect(connections, port, HALF_A_REQUEST + b"\r\n")
    assert scrape(port).endswith(b"large 1.0\n")


def test_a_request_is_answered_while_others_connect_all_the_time(port: int) -> None:
    with ExitStack() as stack:
        ended: list[bool] = []

        def connect_again_and_again() -> None:
            while not ended:
                with suppress(OSError), socket.create_connection(("127.0.0.1", port), 10) as connection:
                    connection.send(HALF_A_REQUEST)

        threads = [Thread(target=connect_again_and_again) for _ in range(4)]
        for thread in threads:
            thread.start()
            stack.callback(thread.join)
        stack.callback(ended.append, True)
        assert all(scrape(port).endswith(b"large 1.0\n") for _ in range(5))


def test_a_request_that_is_too_long_is_not_answered(port: int, connections: ExitStack) -> None:
    connection = connect(connections, port, b"GET /metrics HTTP/1.1\r\nX: " + b"a" * metrics_server._REQUEST_BYTES)
    eventually(lambda: is_closed(connection), "the server closes the connection")


def test_open_connections_do_not_keep_the_server_from_stopping(connections: ExitStack) -> None:
    port = free_port()
    stop = start_metrics_server("127.0.0.1", port, LargePage())
    silent = connect(connections, port, HALF_A_REQUEST)
    unread = connect(connections, port, HALF_A_REQUEST + b"\r\n")
    assert unread.recv(1)
    stop()
    eventually(lambda: is_closed(silent), "the connection is closed")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 10)


def test_a_request_that_fails_prints_nothing(capfd: pytest.CaptureFixture[str], port: int) -> None:
    accept = {"Accept": "application/openmetrics-text;version=z"}
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=accept), timeout=10)
    error.value.close()
    assert error.value.code == 500
    assert capfd.readouterr().err == ""
