"""A server that refuses all writes for a while does not end the event process that claims its shards."""

from datetime import timedelta
from pathlib import Path

import pytest

from services.valkey import ValkeyServer
from tests.fault.event_processes import EventProcessChild
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.storage.keys import shard_key

pytestmark = pytest.mark.fault


@pytest.mark.timeout(120)
@pytest.mark.parametrize("election", ["lease", None], ids=["lease", "lock file"])
def test_an_event_process_waits_until_the_server_has_enough_replicas_again(
    tmp_path: Path, election: str | None
) -> None:
    with (
        ValkeyServer("valkey", tmp_path, {"appendonly": "no"}) as server,
        server.client(decode_responses=False) as redis,
        Tickwheel(server.url, namespace="tw", shards=2, drive=False) as client,
    ):
        client.queue("jobs").enqueue(id="due", delay=timedelta(milliseconds=1))
        process = EventProcessChild(server.url, "tw", tmp_path / "lock", election=election)
        with process:
            eventually(
                lambda: all(redis.hget(shard_key("tw", n, "clock"), "fence") for n in range(2)),
                "both shards are driven",
            )
            redis.config_set("min-replicas-to-write", 1)
            # The driver claims its shards again on new connections.
            redis.client_kill_filter(_type="normal", skipme=True)
            eventually(lambda: "NOREPLICAS" in process.log, "a claim is refused", 30)
            redis.client_kill_filter(_type="normal", skipme=True)
            eventually(lambda: process.log.count("refused") > 1, "the claim is refused again", 60)
            assert process.is_running
            redis.config_set("min-replicas-to-write", 0)
            client.queue("jobs").enqueue(id="later", delay=timedelta(milliseconds=10))
            eventually(lambda: client.queue("jobs").counts()["pending"] == 2, "the shards are driven again", 30)
