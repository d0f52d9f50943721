"""`tickwheel shards` and `tickwheel shards reset-epoch`."""

import json
import os
import socket
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from services.zookeeper import ZooKeeper
from tests.integration.cli.command_runner import Run, answer_on_terminal, document
from tests.support.event_process_thread import run_event_process
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.election.zookeeper_url import ZooKeeperUrl
from tickwheel.event_process import EventProcess
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.driving.obstacles import find_obstacle
from tickwheel.operations.shard_status import shard_statuses
from tickwheel.storage.fence import pack_fence
from tickwheel.storage.keys import queue_key, shard_key

pytestmark = pytest.mark.integration


def run_driver(cli_client: Tickwheel, election: Path | ZooKeeperUrl) -> AbstractContextManager[EventProcess]:
    return run_event_process(os.environ["TICKWHEEL_URL"], cli_client._context.namespace, election)


def wait_until_it_drives(process: EventProcess) -> None:
    eventually(lambda: all(stats.epoch for stats in process.health().values()), "the process drives")


def test_each_shard_is_listed_with_its_owner_and_its_waiting_timers(
    cli_client: Tickwheel, run: Run, tmp_path: Path
) -> None:
    before = document(run("shards", "--json"))
    assert [(shard["owner"], shard["epoch"], shard["inbox"], shard["oldest_ms"]) for shard in before] == [
        ("", 0, 0, None)
    ]
    run("enqueue", "orders", "--delay", "50ms")
    [shard] = document(run("shards", "--json"))
    assert shard["inbox"] == 1
    assert shard["oldest_ms"] >= 0
    with run_driver(cli_client, tmp_path / "lock"):
        eventually(lambda: document(run("shards", "--json"))[0]["lateness_ms"]["buckets"], "the message is promoted")
        [shard] = document(run("--json", "shards"))
        assert shard["owner"] == f"{socket.gethostname()}:{os.getpid()}"
        assert (shard["shard"], shard["epoch"], shard["election"]) == (0, 1, "lockfile")
        table = run("shards").stdout
        assert "lockfile" in table
        assert "p99" in table


@pytest.mark.tickwheel(shards=3)
def test_each_of_several_shards_is_listed_with_its_own_values(
    tw: Tickwheel, direct_client: Tickwheel, server: Any
) -> None:
    namespace, shards = tw._context.namespace, range(3)
    for n in range(20):
        tw.queue(f"orders{n % 2}").enqueue(id=f"o{n}", delay=timedelta(hours=1))
    for shard in shards:
        server.hset(shard_key(namespace, shard, "clock"), "owner", f"host:{shard}")
        server.hset(queue_key(namespace, shard, "orders1", "lateness"), "late:3", shard + 1)
    statuses = direct_client._run(shard_statuses(direct_client._context))
    assert [view.shard for view in statuses] == [*shards]
    assert [view.owner for view in statuses] == ["host:0", "host:1", "host:2"]
    assert [view.inbox for view in statuses] == [server.xlen(shard_key(namespace, shard, "inbox")) for shard in shards]
    assert [view.lateness.promoted for view in statuses] == [{8: 1}, {8: 2}, {8: 3}]


def test_after_a_reset_of_an_election_by_zookeeper_workers_wait_until_an_event_process_has_claimed(
    cli_client: Tickwheel, run: Run, server: Any
) -> None:
    clock = shard_key(cli_client._context.namespace, 0, "clock")

    def obstacle() -> str:
        context = NamespaceContext(cli_client._context.namespace)
        found = cli_client._run(find_obstacle(context, "lease", topics=None))
        return "" if found is None else found.text

    server.hset(clock, mapping={"fence": pack_fence(1, 1), "election": "zookeeper", "owner": "host:1"})
    for _ in range(2):
        run("shards", "reset-epoch", "--yes")
        assert "'zookeeper' before `tickwheel shards reset-epoch`" in obstacle()
    assert "former_election" not in run("doctor").stdout
    server.hset(clock, mapping={"fence": pack_fence(1, 1), "election": "lease", "owner": "host:1"})
    assert obstacle() == ""
    run("shards", "reset-epoch", "--yes")
    assert obstacle() == ""


def test_epochs_are_reset_after_a_confirmation_if_no_process_drives(
    cli_client: Tickwheel, run: Run, tmp_path: Path
) -> None:
    def refused() -> bool:
        return "is being driven" in run("shards", "reset-epoch", "--yes", code=1).stderr

    with run_driver(cli_client, tmp_path / "lock") as process:
        wait_until_it_drives(process)
        eventually(refused, "the reset is refused")
    error = json.loads(run("--json", "shards", "reset-epoch", stdin="y\n", code=1).stderr)
    assert "there is no terminal to ask, so confirm with --yes" in str(error)
    code, text = answer_on_terminal("n", "shards", "reset-epoch")
    assert (code, "nothing was changed" in text) == (1, True)
    assert document(run("shards", "--json"))[0]["epoch"] == 1
    assert "1 of 1 shards" in answer_on_terminal("y", "shards", "reset-epoch")[1]
    again = run("shards", "--json", "reset-epoch", "--yes")
    assert document(again)["forgotten"] == []
    assert "those without `--drive never` claim the shards by lease after 15 s" in again.stderr
    [shard] = document(run("shards", "--json"))
    # The kind of election is reset too: another kind may drive the shard now.
    assert (shard["owner"], shard["epoch"], shard["election"]) == ("", 0, "")


def test_no_name_that_another_user_gives_a_connection_stops_a_command(
    cli_client: Tickwheel, run: Run, server: Any
) -> None:
    name = f"tickwheel-events:{cli_client._context.namespace}:{'9' * 5_000}"
    connection = server.connection_pool.get_connection()
    try:
        connection.send_command("CLIENT", "SETNAME", name)
        connection.read_response()
        connection.send_command("XREAD", "BLOCK", 0, "STREAMS", "of-another-namespace", "$")
        eventually(lambda: {"xread"} & {client["cmd"] for client in server.client_list()}, "the connection reads")
        assert "driver" in {finding["check"] for finding in document(run("doctor", "--json"))}
        run("shards", "reset-epoch", "--yes")
        run("namespace", "delete", "--yes")
    finally:
        connection.disconnect()


def test_a_new_ensemble_drives_after_its_epochs_are_reset(
    cli_client: Tickwheel, run: Run, server: Any, zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    def url() -> ZooKeeperUrl:
        return ZooKeeperUrl.parse(f"zk://{zookeeper.hosts}/{os.urandom(6).hex()}")

    lost = url()
    for _ in range(4):
        with run_driver(cli_client, lost) as process:
            wait_until_it_drives(process)
    key = shard_key(cli_client._context.namespace, 0, "clock")
    fence = server.hget(key, "fence")
    with run_driver(cli_client, url()) as process:
        eventually(lambda: "tickwheel shards reset-epoch" in caplog.text, "the log names the remedy")
        assert server.hget(key, "fence") == fence
        run("shards", "reset-epoch", "--yes")
        wait_until_it_drives(process)


def test_election_options_that_make_no_sense_are_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for options in (
        ("--election", "zk://h", "--lock", "file"),
        ("--election", "kafka://h"),
        ("--election", "zk://h", "--session-timeout", "1h"),
        ("--session-timeout", "4s", "--lock", "file"),
        ("--session-timeout", "1h"),
    ):
        run("events", *options, code=2)
    monkeypatch.delenv("TICKWHEEL_URL")
    assert "--url" in run("events", "--election", "zk://h", code=2).stderr
