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
from tickwheel.storage.fence import CLAIM_FIELDS
from tickwheel.storage.keys import shard_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration


def test_connections_of_shards_are_not_taken_from_the_pool_of_the_client(tickwheel_server: PrivateServer) -> None:
    woken, wake = os.pipe()
    with Redis.from_url(tickwheel_server.url, protocol=2, max_connections=1) as client:
        for _ in range(5):
            link = ShardConnection(client, woken)
            assert link.execute(ReadClaim("none")) == [None] * len(CLAIM_FIELDS)
            assert client.ping()
            link.close()
    os.close(woken)
    os.close(wake)


def test_a_program_that_drives_a_server_has_no_lock_file_and_releases_its_shards(
    tickwheel_server: PrivateServer, server: Any
) -> None:
    with Tickwheel(tickwheel_server.url, namespace="driven", shards=2, drive=True):
        lock = default_lock(tickwheel_server.url, "driven")
        key = shard_key("driven", 1, "clock")
        eventually(lambda: server.hget(key, "holder"), "the shard is claimed")
        assert not any(Path(f"{lock}.{shard}").exists() for shard in range(2))
    assert server.hmget(key, "election", "holder") == [b"lease", None]
    tickwheel_server.clear("driven")
