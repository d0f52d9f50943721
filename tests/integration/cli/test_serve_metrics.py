"""`tickwheel serve --metrics`: a page of one process or the sum of several, for this machine unless told otherwise."""

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from prometheus_client.parser import text_string_to_metric_families

from services.process import free_port
from tests.conditions import eventually
from tickwheel import Tickwheel
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

TICKWHEEL = (sys.executable, "-m", "tickwheel")
ENDS_S = 30

Page = Callable[[], dict[str, float]]


@pytest.fixture
def namespace(tickwheel_server: PrivateServer) -> Iterator[str]:
    name = f"serve-{os.urandom(6).hex()}"
    yield name
    tickwheel_server.clear(name)


@pytest.fixture
def start(tickwheel_server: PrivateServer) -> Iterator[Callable[..., tuple[subprocess.Popen[str], str, Page]]]:
    """Starts the service; the process, its URL, and what reads its page of figures, summed over their labels."""
    started: list[subprocess.Popen[str]] = []

    def start_one(*options: str) -> tuple[subprocess.Popen[str], str, Page]:
        port = free_port()
        where = ["--url", tickwheel_server.url, "--listen", "127.0.0.1:0", "--metrics", f"127.0.0.1:{port}"]
        process = subprocess.Popen([*TICKWHEEL, "serve", *where, *options], stderr=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("serving "):
                return process, line.split()[1], lambda: page(port)
        pytest.fail(f"ended with {process.wait(ENDS_S)}")

    yield start_one
    for process in started:
        process.terminate()
        process.wait(ENDS_S)
        assert process.stderr is not None
        process.stderr.close()


def page(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found: dict[str, float] = {}
    for metric in text_string_to_metric_families(text):
        for sample in metric.samples:
            if sample.labels.get("le") in (None, "+Inf"):
                name = sample.name.removeprefix("tickwheel_service_")
                found[name] = found.get(name, 0) + sample.value
    return found


def enqueue_from_many(url: str, namespace: str, clients: int) -> None:
    """Each has a connection of its own, so that it may have a process of its own."""
    for _ in range(clients):
        with Tickwheel(url, namespace=namespace) as tickwheel:
            tickwheel.queue("q").enqueue()


def test_a_process_tells_its_figures(start: Callable[..., tuple[object, str, Page]], namespace: str) -> None:
    _, url, figures = start()
    enqueue_from_many(url, namespace, 2)
    found = figures()
    assert (found["enqueued_messages_total"], found["processes"], found["namespaces"]) == (2, 1, 1)


def test_several_processes_tell_their_sum_also_of_one_that_has_died(
    start: Callable[..., tuple[subprocess.Popen[str], str, Page]], namespace: str
) -> None:
    process, url, figures = start("--processes", "2")
    eventually(lambda: figures().get("processes") == 2, "both tell")
    enqueue_from_many(url, namespace, 10)
    assert figures()["enqueued_messages_total"] == 10
    assert figures()["call_seconds_bucket"] == figures()["call_seconds_count"] == figures()["calls_total"]
    for pid in children(process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    eventually(lambda: figures().get("processes", 0) < 2, "they have died")
    eventually(lambda: figures().get("processes") == 2, "they were started again", within=30)
    assert figures()["enqueued_messages_total"] == 10
    enqueue_from_many(url, namespace, 5)
    assert figures()["enqueued_messages_total"] == 15


def children(pid: int) -> list[int]:
    listed = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=True)
    return [int(each) for each in listed.stdout.split()]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("0.0.0.0:9464", "accept it by --insecure"),
        ("9464", "HOST:PORT"),
        ("127.0.0.1:0", "HOST:PORT"),
        ("192.0.2.1:9464", "metrics cannot be served on 192.0.2.1:9464"),
    ],
)
def test_where_figures_cannot_be_served_is_said_before_anything_listens(given: str, said: str) -> None:
    command = [*TICKWHEEL, "serve", "--listen", "127.0.0.1:0", "--metrics", given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=ENDS_S, check=False)
    assert done.returncode == 2, done.stderr
    assert said in " ".join(done.stderr.split())
