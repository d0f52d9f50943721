"""`tickwheel serve --metrics`: a page of one process or the sum of several, by default only for the local machine."""

import os
import signal
import subprocess
import urllib.request
from collections.abc import Callable
from contextlib import suppress

import pytest
from prometheus_client.parser import text_string_to_metric_families

from services.process import free_port
from services.serving_program import ServingProgram
from tests.integration.cli.command_runner import ENDS_S, TICKWHEEL, Start
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

Page = Callable[[], dict[str, float]]
Serve = Callable[..., tuple[ServingProgram, Page]]


@pytest.fixture
def serve(start: Start, tickwheel_server: PrivateServer) -> Serve:
    """Start the service. Return its process and a function that reads its metrics, summed over their labels."""

    def start_service(*options: str) -> tuple[ServingProgram, Page]:
        port = free_port()
        where = ["--url", tickwheel_server.url, "--listen", "127.0.0.1:0", "--metrics", f"127.0.0.1:{port}"]
        return start("serve", "--drive", "never", *where, *options), lambda: page(port)

    return start_service


def page(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    totals: dict[str, float] = {}
    for metric in text_string_to_metric_families(text):
        for sample in metric.samples:
            if sample.labels.get("le") in (None, "+Inf"):
                name = sample.name.removeprefix("tickwheel_service_")
                totals[name] = totals.get(name, 0) + sample.value
    return totals


def enqueue_from_clients(url: str, namespace: str, clients: int) -> None:
    """Each client has its own connection, so that different processes may serve them."""
    for _ in range(clients):
        with Tickwheel(url, namespace=namespace) as tickwheel:
            tickwheel.queue("q").enqueue()


def test_a_process_serves_its_metrics(serve: Serve, namespace: str) -> None:
    service, figures = serve()
    enqueue_from_clients(service.url, namespace, 2)
    totals = figures()
    assert (totals["enqueued_messages_total"], totals["processes"], totals["namespaces"]) == (2, 1, 1)


def test_several_processes_serve_the_sum_of_their_metrics_and_include_a_dead_process(
    serve: Serve, namespace: str
) -> None:
    service, figures = serve("--processes", "2")
    eventually(lambda: figures().get("processes") == 2, "both processes report metrics")
    enqueue_from_clients(service.url, namespace, 10)
    assert figures()["enqueued_messages_total"] == 10
    assert figures()["call_seconds_bucket"] == figures()["call_seconds_count"] == figures()["calls_total"]
    for pid in children(service.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    eventually(lambda: figures().get("processes", 0) < 2, "the killed processes are not counted")
    eventually(lambda: figures().get("processes") == 2, "the processes are restarted", within=30)
    assert figures()["enqueued_messages_total"] == 10
    enqueue_from_clients(service.url, namespace, 5)
    assert figures()["enqueued_messages_total"] == 15


def children(pid: int) -> list[int]:
    listed = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=True)
    return [int(child) for child in listed.stdout.split()]


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("9464", "HOST:PORT"),
        ("127.0.0.1:0", "HOST:PORT"),
        ("192.0.2.1:9464", "--metrics: cannot listen on 192.0.2.1:9464"),
    ],
)
def test_serve_refuses_an_unusable_address_of_metrics_before_it_listens(address: str, text: str) -> None:
    command = [*TICKWHEEL, "serve", "--listen", "127.0.0.1:0", "--metrics", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=ENDS_S, check=False)
    assert done.returncode == 2, done.stderr
    assert text in " ".join(done.stderr.split())
