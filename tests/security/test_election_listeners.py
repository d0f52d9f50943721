"""A command asks who takes part in an election by lease only as a user of the server who may know this."""

from pathlib import Path

import pytest

from tests.security.acl_server import serve_with_users
from tickwheel import Tickwheel
from tickwheel.client import driver_watch
from tickwheel.client.driver_watch import check_members
from tickwheel.redis.acl import users
from tickwheel.storage.fence import pack_fence
from tickwheel.storage.keys import shard_key

pytestmark = pytest.mark.security

SHARDS = 2


def test_the_check_whether_a_process_takes_part_leaves_no_entry_in_the_acl_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_watch, "RECONNECT_S", 0.0)
    restricted = users("tw")
    with serve_with_users(tmp_path, restricted) as server:
        with Tickwheel(server.url, shards=SHARDS, drive=False) as client, server.client() as redis:
            for shard in range(SHARDS):
                redis.hset(shard_key("tw", shard, "clock"), mapping={"fence": pack_fence(1, 1), "election": "lease"})
            assert "no event process drives" in client._run(check_members(client._context))
        for user in restricted:
            with Tickwheel(f"redis://{user.name}:{user.password}@{server.address}", drive=False) as client:
                server.call("ACL", "LOG", "RESET")
                assert client._run(check_members(client._context)) == ""
                assert server.call("ACL", "LOG") == []
