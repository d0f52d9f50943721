"""An event process releases its resources: connections, and its lock file."""

import os
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.driver.commands import ReadClaim
from tickwheel.driver.shard_connection import ShardConnection
from tickwheel.election.lock_file import default_lock
from tickwheel.storage.keys import shard_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration


def test_connections_of_shards_are_not_taken_from_the_pool_of_the_client(tickwheel_server: PrivateServer) -> None:
    woken, wake = os.pipe()
    with Redis.from_url(tickwheel_server.url, protocol=2, max_connections=1) as client:
        for _ in range(5):
            link = ShardConnection(client, woken)
            assert link.execute(ReadClaim("none")) == [None, None, None]
            assert client.ping()
            link.close()
    os.close(woken)
    os.close(wake)


def test_a_program_that_drives_a_server_leaves_no_lock_file(tickwheel_server: PrivateServer, server: Any) -> None:
    with Tickwheel(tickwheel_server.url, namespace="driven", shards=2, drive=True):
        lock = default_lock(tickwheel_server.url, "driven")
        lock_files = [Path(f"{lock}.{shard}") for shard in range(2)]
        eventually(lambda: server.hget(shard_key("driven", 1, "clock"), "fence"), "the shard is claimed")
        eventually(lambda: all(path.exists() for path in lock_files), "the lock files are there")
    assert not any(path.exists() for path in lock_files)
    tickwheel_server.clear("driven")
