"""Event processes of the earlier and the present version relay the events of one namespace in turn."""

from pathlib import Path
from typing import Any

import pytest

from services.kafka import Kafka
from services.valkey import ValkeyServer
from tests.fault.test_relay_faults import Load, check_history
from tests.support.kafka_topics import make_topic
from tests.support.wait_until import eventually
from tests.upgrade.mixed_deployment import PRESENT, Component, wait_for_drivers
from tickwheel import Tickwheel
from tickwheel.storage.keys import shard_key

pytestmark = pytest.mark.fault

SHARDS = 2


@pytest.mark.timeout(600)
@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_every_event_is_relayed_in_order_while_the_event_processes_are_upgraded_and_downgraded(
    earlier: str, kafka: Kafka, tmp_path: Path, is_killed: bool
) -> None:
    topic = make_topic(kafka)
    # The earlier version knows no election by lease, which is the default of the present one.
    lock = ("--lock", str(tmp_path / "lock"))
    kafka_options = ("--kafka", kafka.bootstrap, "--topic", topic)
    arguments = ("-m", "tickwheel", "events", "--shards", str(SHARDS), *lock, *kafka_options)
    with (
        ValkeyServer("valkey", tmp_path, {"appendonly": "no"}) as server,
        server.client(decode_responses=False) as redis,
    ):
        environment = {"TICKWHEEL_URL": server.url}
        processes = [Component(f"events-{n}", arguments, tmp_path / f"{n}", environment, ready="") for n in range(2)]
        try:
            leader, standby = processes
            # The event process creates the namespace, with the history `relay`.
            leader.start(earlier)
            with Tickwheel(server.url, drive=False) as client:
                load = Load(client.create_queue("jobs"))
                with load.running():
                    assert wait_for_drivers([leader], client) == {earlier}
                    standby.start(earlier)
                    wait_until_relayed(redis, load)
                    # In each turn, the leader ends and the standby takes over. Then a process starts as the standby.
                    # So each version takes over from each version.
                    for site in (PRESENT, PRESENT, earlier, earlier):
                        leader.kill() if is_killed else leader.stop()
                        assert wait_for_drivers([standby], client) == {standby.site}
                        wait_until_relayed(redis, load)
                        leader.start(site)
                        leader, standby = standby, leader
                eventually(lambda: not last_entries(redis), "the outbox is relayed", 60)
        finally:
            for process in processes:
                process.kill()
    assert len(load.done) > 1_000
    check_history(kafka, topic, load.done)


def wait_until_relayed(redis: Any, load: Load) -> None:
    """Wait until messages are completed, and the present event processes have relayed their events."""
    before = len(load.done)
    eventually(lambda: len(load.done) > before + 100, "messages are completed", 60)
    last = last_entries(redis)
    eventually(lambda: not any(redis.xrange(key, id, id) for key, id in last.items()), "the events are relayed", 60)


def last_entries(redis: Any) -> dict[str, bytes]:
    """Return the id of the last entry of each shard's outbox that is not empty."""
    keys = [shard_key("tw", shard, "events") for shard in range(SHARDS)]
    return {key: entries[0][0] for key in keys if (entries := redis.xrevrange(key, count=1))}
