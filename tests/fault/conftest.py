"""A server or a Kafka of its own for each test that breaks one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from services.kafka import Kafka
from tests.fault.faulty_server import FaultyServer


@pytest.fixture
def faulty(tmp_path: Path) -> Iterator[FaultyServer]:
    """A server that can be killed, frozen and started again."""
    folder = tmp_path / "server"
    folder.mkdir()
    server = FaultyServer(folder)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Kafka]:
    """A Kafka that can be killed and started again."""
    with Kafka(tmp_path / "kafka") as found:
        yield found
