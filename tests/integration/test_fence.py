"""Each script of the event process is refused for a deposed event process and changes nothing."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis.exceptions import ResponseError

from services.zookeeper import ZooKeeper
from tests.conftest import Dump
from tests.support.event_process_thread import run_event_process
from tests.support.wait_until import eventually
from tickwheel import NewMessage, Tickwheel
from tickwheel.driver.commands import Command
from tickwheel.driver.shard_connection import ShardConnection
from tickwheel.election.zookeeper_url import ZooKeeperUrl
from tickwheel.errors import Fenced
from tickwheel.storage.fence import pack_fence
from tickwheel.storage.keys import shard_key
from tickwheel.storage.script_errors import ScriptError
from tickwheel.storage.scripts import Call, load
from tickwheel.testing import PrivateServer, VirtualClock
from tickwheel.testing.virtual_clock import FRAGMENT

pytestmark = pytest.mark.integration

SCRIPTS = {"file_timers", "cascade_slot", "drop_slot", "promote", "expire", "retire"}
DEPOSED = bytes(16)


@pytest.mark.parametrize("exclusive_key", [None, "of"])
def test_a_deposed_process_is_refused_before_every_call_of_its_successor(
    tw: Tickwheel, clock: VirtualClock, dump: Dump, monkeypatch: pytest.MonkeyPatch, exclusive_key: str | None
) -> None:
    refused: Counter[str] = Counter()
    execute = ShardConnection.execute

    def preceded(link: ShardConnection, command: Command) -> Any:
        if isinstance(command, Call) and command.script.name in SCRIPTS:
            before = dump()
            with pytest.raises(ScriptError) as refusal:
                execute(link, replace(command, args=[DEPOSED, *command.args[1:]]))
            assert refusal.value.code == "FENCED", command.script.name
            assert dump() == before
            refused[command.script.name] += 1
        return execute(link, command)

    monkeypatch.setattr(ShardConnection, "execute", preceded)
    queue = tw.create_queue("q", exclusive_key=exclusive_key)
    # Some near timers, some a cascade or two above.
    queue.enqueue_many(
        NewMessage(delay=timedelta(seconds=n * 7), metadata={"of": f"v{n}"}, lease=timedelta(seconds=1 + n))
        for n in range(60)
    )
    clock.advance(timedelta(minutes=10))
    leased = queue.dequeue(limit=30)
    for message in leased[:10]:
        message.complete()
    clock.advance(timedelta(hours=1))
    assert set(refused) == SCRIPTS
    assert queue.counts() | {"invisible": 0, "running": 0, "completed": 0, "pending": 50} == queue.counts()


def test_no_claim_goes_below_the_fence_that_holds_the_shard(tw: Tickwheel, server: Any) -> None:
    """A late claim of an earlier epoch or of the previous connection changes nothing."""
    script = load("claim_shard", FRAGMENT)
    key = shard_key("claimed", 0, "clock")
    server.hset(key, "now", 1)

    def claim(epoch: int, connection: int) -> bytes:
        server.eval(script.source, 1, key, pack_fence(epoch, connection), "a lock", "", "host:1")
        return bytes(server.hget(key, "fence"))

    assert claim(5, 2) == pack_fence(5, 2)
    for epoch, connection in ((5, 1), (4, 9), (1, 2**40)):
        with pytest.raises(ResponseError) as refusal:
            claim(epoch, connection)
        error = ScriptError(str(refusal.value)).to_tickwheel_error("shard 0")
        assert isinstance(error, Fenced)
        assert (str(error), error.held) == ("shard 0: FENCED the shard is held by epoch 5", 5)
        assert server.hget(key, "fence") == pack_fence(5, 2)
    for epoch, connection in ((5, 2), (5, 3), (2**40, 1)):
        assert claim(epoch, connection) == pack_fence(epoch, connection)
    server.delete(key)


def test_before_the_first_claim_the_trusted_time_is_that_of_the_namespaces_creation(
    tickwheel_server: PrivateServer, namespace: str, server: Any
) -> None:
    before = server.time()[0] * 1_000
    with Tickwheel(tickwheel_server.url, namespace=namespace, shards=2, drive=False) as tickwheel:
        tickwheel.create_queue("jobs")
    script = load("claim_shard")
    for shard in range(2):
        key = shard_key(namespace, shard, "clock")
        created = int(server.hget(key, "created"))
        assert before <= created <= server.time()[0] * 1_000 + 999
        for trusted in (b"%d" % created, b"17"):
            claim = ["a lock", "", "host:1", "17", "1"]
            assert server.eval(script.source, 1, key, pack_fence(1, 1), *claim)[1] == trusted
        assert server.hget(key, "held") == b"1" + pack_fence(1, 1)
        server.eval(script.source, 1, key, pack_fence(1, 1), *claim[:3], "18", "0")
        assert (server.hget(key, "high"), server.hget(key, "held")) == (b"18", None)


def test_a_leader_refused_at_its_claim_resigns_and_drives_once_it_is_elected_again(
    tickwheel_server: PrivateServer, namespace: str, server: Any, zookeeper: ZooKeeper
) -> None:
    """The session stays alive, so only the refusal ends the leadership."""
    election = ZooKeeperUrl.parse(f"zk://{zookeeper.hosts}")
    with (
        Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel,
        run_event_process(tickwheel_server.url, namespace, election) as process,
    ):
        epoch = eventually(lambda: process.health()[0].epoch, "the leader drives")
        newer = pack_fence(epoch + 1, 0)
        server.eval(load("claim_shard").source, 1, shard_key(namespace, 0, "clock"), newer, "zookeeper", "", "host:1")
        queue = tickwheel.queue("jobs")
        queue.enqueue(delay=timedelta(milliseconds=1))
        assert len(queue.dequeue(wait=timedelta(seconds=20))) == 1
        assert process.health()[0].epoch > epoch


def test_after_a_reset_of_the_epochs_a_refused_leader_hands_over_as_before(
    tickwheel_server: PrivateServer,
    namespace: str,
    server: Any,
    zookeeper: ZooKeeper,
    caplog: pytest.LogCaptureFixture,
) -> None:
    claim, key = load("claim_shard").source, shard_key(namespace, 0, "clock")
    outdated = "the election's state was lost"

    def epoch() -> int:
        return process.health()[0].epoch

    with (
        Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel,
        run_event_process(tickwheel_server.url, namespace, ZooKeeperUrl.parse(f"zk://{zookeeper.hosts}")) as process,
    ):
        queue = tickwheel.queue("jobs")

        def claim_by_another(epoch: int) -> None:
            server.eval(claim, 1, key, pack_fence(epoch, 0), "zookeeper", "", "host:1")
            # The leader's next call is refused.
            queue.enqueue(delay=timedelta(milliseconds=1))

        claim_by_another(eventually(epoch, "the process leads") + 1_000)
        eventually(lambda: outdated in caplog.text, "the process names the remedy")
        assert server.eval(load("reset_epoch").source, 1, key) == 1
        epoch_after_reset = eventually(epoch, "the process leads again")
        caplog.clear()
        claim_by_another(epoch_after_reset + 1)
        eventually(lambda: epoch() > epoch_after_reset, "the process is elected again")
        assert outdated not in caplog.text


def test_a_leader_that_returns_keeps_the_clock_step_that_was_accepted_while_another_process_led(
    tickwheel_server: PrivateServer, namespace: str, server: Any, zookeeper: ZooKeeper
) -> None:
    hour = timedelta(hours=1)
    key = shard_key(namespace, 0, "clock")

    def set_clock(moment: datetime) -> None:
        server.hset(key, "now", int(moment.timestamp() * 1_000))

    started = datetime.now(UTC)
    set_clock(started)
    with (
        Tickwheel(tickwheel_server.url, namespace=namespace, clock=FRAGMENT) as tickwheel,
        run_event_process(
            tickwheel_server.url, namespace, ZooKeeperUrl.parse(f"zk://{zookeeper.hosts}"), clock=FRAGMENT
        ) as process,
    ):
        epoch = eventually(lambda: process.health()[0].epoch, "the process leads")
        # Another leader claims the shard and accepts a step.
        claim = [pack_fence(epoch + 1, 0), "zookeeper", int(hour.total_seconds() * 1_000), "host:1"]
        server.eval(load("claim_shard", FRAGMENT).source, 1, key, *claim)
        set_clock(started + hour)
        queue = tickwheel.queue("jobs")
        queue.enqueue(id="within the step", due=started + hour / 2)
        eventually(lambda: process.health()[0].epoch > epoch, "the process leads again")
        eventually(lambda: queue.get("within the step").state == "pending", "the message is promoted")
        assert not process.health()[0].held
        # The process adapts the accepted step to the clock of this host.
        assert int(server.hget(key, "accepted")) > hour.total_seconds() * 500
