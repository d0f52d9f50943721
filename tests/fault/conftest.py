"""A separate server, broker or proxy for each test that breaks one."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from services.kafka import Kafka
from services.process import Process
from tests.fault.faulty_server import FaultyServer
from tests.fault.flaky_proxy import FlakyProxy
from tests.fault.stopped_programs import open_program
from tests.fault.worker_processes import WorkerDeployment, deploy_workers
from tests.integration.blocking_aio import blocking_aio
from tests.support.driven_before import drive_and_release
from tickwheel import Tickwheel
from tickwheel.testing import PrivateServer


@pytest.fixture
def faulty(tmp_path: Path) -> Iterator[FaultyServer]:
    """A server that can be killed, paused and restarted."""
    server = FaultyServer(tmp_path / "server")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def proxy(tickwheel_server: PrivateServer) -> Iterator[FlakyProxy]:
    """A proxy that can lose replies, in front of the server of the tests."""
    with FlakyProxy(str(tickwheel_server.folder / "valkey.sock"), seed=1) as proxy:
        yield proxy


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Kafka]:
    """A Kafka broker that can be killed and restarted."""
    with Kafka(tmp_path / "kafka") as kafka:
        yield kafka


@pytest.fixture
def deployment(tickwheel_server: PrivateServer, namespace: str, tmp_path: Path) -> Iterator[WorkerDeployment]:
    """A namespace with an event process, and the app of `worker_app`."""
    with deploy_workers(tickwheel_server.url, namespace, tmp_path) as deployed:
        yield deployed


@pytest.fixture
def driven_before(tickwheel: Tickwheel, tickwheel_server: PrivateServer, server: Any) -> None:
    """The last driver of the namespace has released all shards."""
    drive_and_release(tickwheel, tickwheel_server.url, server)


@pytest.fixture(params=["thread", "task"])
def open_client(request: pytest.FixtureRequest) -> Callable[..., AbstractContextManager[Any]]:
    """A function that opens the blocking client, or the asyncio client with a blocking interface."""
    if request.param == "thread":
        return Tickwheel
    return blocking_aio


@pytest.fixture
def program(
    request: pytest.FixtureRequest, tickwheel_server: PrivateServer, namespace: str, tmp_path: Path
) -> Iterator[Callable[[], Process]]:
    """Return a function that starts a program of `stopped_programs.PROGRAMS`, and waits until it runs."""
    with open_program(request.param, tickwheel_server, namespace, tmp_path) as start:
        yield start
