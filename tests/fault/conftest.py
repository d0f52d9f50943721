"""A server, a broker or a proxy of its own for each test that breaks one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from services.kafka import Kafka
from tests.fault.faulty_server import FaultyServer
from tests.fault.flaky_proxy import FlakyProxy
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
    """A proxy to the server of the tests that can lose replies."""
    with FlakyProxy(str(tickwheel_server.folder / "valkey.sock"), seed=1) as proxy:
        yield proxy


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Kafka]:
    """A Kafka that can be killed and started again."""
    with Kafka(tmp_path / "kafka") as found:
        yield found
