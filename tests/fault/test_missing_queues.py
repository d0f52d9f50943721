"""A worker of a full server takes messages of the queues that exist, and creates the others later."""

import threading
from pathlib import Path

import pytest

from tests.fault import worker_app
from tests.fault.faulty_server import FaultyServer
from tests.fault.worker_processes import deploy_workers
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.tasks import TaskApp
from tickwheel.worker import missing_queues

pytestmark = pytest.mark.fault


def test_a_worker_of_a_full_server_works_on_the_queues_that_exist(faulty: FaultyServer, tmp_path: Path) -> None:
    with deploy_workers(faulty.url, "full", tmp_path) as deployment, faulty.client() as server:
        sent = deployment.send(worker_app.double, 7)
        server.config_set("maxmemory", "1")
        with deployment.worker() as worker:
            deployment.wait_for_state(sent, "completed")
            assert worker.log.count("cannot create queue 'other' now, and tries again") == 1
        server.config_set("maxmemory", "0")


def test_the_missing_queues_are_created_when_the_server_has_memory(
    faulty: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missing_queues, "_RETRY_S", 0.01)
    stopping = threading.Event()
    with (
        Tickwheel(faulty.url, namespace="full") as tickwheel,
        TaskApp(faulty.url, namespace="full") as app,
        faulty.client() as server,
    ):
        for name in ("first", "second", "third"):
            app.queue(name, lease=7)
        app.declared("second")
        server.config_set("maxmemory", "1")
        names = missing_queues.create_queues(app, list(app.queues), is_restart=False)
        assert names == ["first", "third"]
        missing_queues.create_later(app._clients.current, names, stopping)
        server.config_set("maxmemory", "0")
        eventually(lambda: len(tickwheel.queues()) == 3, "all queues are created", 10)
        stopping.set()
        assert tickwheel.queue("third").config().lease_ms == 7_000


def test_a_queue_that_cannot_be_created_does_not_keep_the_others_from_being_created(
    faulty: FaultyServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(missing_queues, "_RETRY_S", 0.01)
    stopping = threading.Event()
    with (
        Tickwheel(faulty.url, namespace="conflicts") as tickwheel,
        TaskApp(faulty.url, namespace="conflicts") as app,
    ):
        for name in ("first", "second"):
            app.queue(name, exclusive_key="customer")
        tickwheel.create_queue("first", exclusive_key="order")
        missing_queues.create_later(app._clients.current, ["first", "second"], stopping)
        eventually(lambda: len(tickwheel.queues()) == 2, "the second queue is created", 10)
        stopping.set()
    [line] = [record for record in caplog.records if record.name == "tickwheel.worker"]
    assert line.message.startswith("cannot create queue 'first', and tries again: ")
