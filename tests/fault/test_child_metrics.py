"""The metrics page of a worker or a service has the metrics of its child, while the child drives."""

import os
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from services.process import free_port
from services.serving_program import SERVE, ServingProgram
from tests.fault import worker_app
from tests.fault.event_processes import EventProcessChild
from tests.fault.shard_owners import LeaseOwners
from tests.fault.worker_processes import Worker
from tests.support.paused_process import pause
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.testing import PrivateServer

pytestmark = [pytest.mark.fault, pytest.mark.usefixtures("driven_before")]

SHARDS = 2
# The time of a start on a busy machine.
SETTLED_S = 60.0
OF_CHILD = {"tickwheel_shard_epoch", "tickwheel_messages"}
OF_WORKER, OF_SERVICE = {"tickwheel_worker_processes"}, {"tickwheel_service_processes"}


@pytest.fixture
def tickwheel(tickwheel_server: PrivateServer, namespace: str) -> Iterator[Tickwheel]:
    worker_app.app.move(url=tickwheel_server.url, namespace=namespace)
    with Tickwheel(tickwheel_server.url, namespace=namespace, shards=SHARDS) as client:
        client.create_queue("others").enqueue()
        yield client
    worker_app.app.close()


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def worker(
    tickwheel: Tickwheel, tickwheel_server: PrivateServer, driven_before: None, port: int, tmp_path: Path
) -> Iterator[Worker]:
    """A worker whose child drives."""
    options = ("--metrics", f"127.0.0.1:{port}")
    with Worker(tickwheel_server.url, tickwheel._context.namespace, tmp_path, *options, drive="auto") as worker:
        wait_for_metrics(port, OF_CHILD | OF_WORKER)
        yield worker


def sample_names(port: int) -> set[str]:
    """Return the names of the samples on the page; none if nobody serves it yet."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            page = answer.read().decode()
    except OSError:
        return set()
    return {sample.name for metric in text_string_to_metric_families(page) for sample in metric.samples}


def wait_for_metrics(port: int, names: set[str]) -> None:
    eventually(lambda: names <= sample_names(port), f"the page has {names}", SETTLED_S)


def test_the_page_of_a_worker_has_the_metrics_of_shards_until_an_event_process_drives(
    worker: Worker, tickwheel: Tickwheel, tickwheel_server: PrivateServer, port: int, tmp_path: Path
) -> None:
    where = (tickwheel_server.url, tickwheel._context.namespace, tmp_path / "events")
    with EventProcessChild(*where, election="lease") as events:
        eventually(lambda: not sample_names(port) & OF_CHILD, "the child hands over", SETTLED_S)
        assert sample_names(port) >= OF_WORKER
        events.stop()
    wait_for_metrics(port, OF_CHILD | OF_WORKER)


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_child_that_hangs_or_has_ended_does_not_break_the_page(
    worker: Worker, tickwheel: Tickwheel, server: Any, port: int, number: signal.Signals
) -> None:
    leaders = LeaseOwners(tickwheel, server)
    owner = eventually(lambda: leaders.now()[0], "the child drives", SETTLED_S)
    child = int(owner.rpartition(":")[2])
    if number is signal.SIGSTOP:
        pause(child)
    else:
        os.kill(child, number)
    names = sample_names(port)
    assert names >= OF_WORKER
    if number is signal.SIGSTOP:
        assert not names & OF_CHILD
        os.kill(child, signal.SIGCONT)
    wait_for_metrics(port, OF_CHILD | OF_WORKER)


@pytest.mark.parametrize("processes", ["1", "2"])
def test_the_page_of_a_service_has_the_metrics_of_shards(
    tickwheel: Tickwheel, tickwheel_server: PrivateServer, port: int, tmp_path: Path, processes: str
) -> None:
    where = (tickwheel_server.url, "--namespace", tickwheel._context.namespace, "--drive", "auto")
    options = ("--processes", processes, "--metrics", f"127.0.0.1:{port}")
    with ServingProgram(tmp_path, *SERVE, *where, *options):
        wait_for_metrics(port, OF_CHILD | OF_SERVICE)
