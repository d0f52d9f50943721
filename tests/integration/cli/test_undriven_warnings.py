"""A namespace that no event process drives: commands and workers warn."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.fault.event_processes import EventProcessChild
from tests.integration.cli.command_runner import Run, documents
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.cli import driver_warning
from tickwheel.client import driver_watch
from tickwheel.storage.keys import election_key, shard_key
from tickwheel.storage.sharding import shard_of
from tickwheel.testing import PrivateServer
from tickwheel.worker import driver_alarm
from tickwheel.worker.driver_alarm import DriverAlarm
from tickwheel.worker.last_resort_driver import LastResortDriver

pytestmark = pytest.mark.integration

WARNING = "no event process drives namespace"


@contextmanager
def driven(client: Tickwheel, url: str, server: Any, log: Path, election: str | None) -> Iterator[EventProcessChild]:
    """Run an event process, from its claim on."""
    namespace = client._context.namespace
    with EventProcessChild(url, namespace, log, election=election) as process:
        name = f":{process.pid}".encode()
        key = shard_key(namespace, 0, "clock")
        eventually(lambda: (server.hget(key, "owner") or b"").endswith(name), "the process drives")
        yield process


def wait_until_nobody_listens(server: Any, namespace: str) -> None:
    """Wait until no process takes part in the election by lease."""
    channel = election_key(namespace)
    eventually(lambda: server.execute_command("PUBSUB", "SHARDNUMSUB", channel)[1] == 0, "its connection has ended")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings of workers."""
    return [line.message for line in caplog.records if line.levelno == logging.WARNING and WARNING in line.message]


@pytest.mark.parametrize("election", [None, "lease"])
def test_commands_that_need_a_timer_warn_until_an_event_process_drives(
    run: Run, cli_client: Tickwheel, tickwheel_server: PrivateServer, server: Any, tmp_path: Path, election: str | None
) -> None:
    commands = (
        ("enqueue", "jobs", "x", "--id", "later", "--delay", "1h"),
        ("reschedule", "jobs", "later", "--delay", "2h"),
        ("route", "set", "mail.send", "--to", "tickwheel"),
    )
    for command in commands:
        result = run(*command)
        assert f"warning: {WARNING} '{cli_client._context.namespace}'" in result.stderr
        assert "Run `tickwheel events`" in result.stderr
        assert WARNING not in result.stdout
    with driven(cli_client, tickwheel_server.url, server, tmp_path / "log", election):
        inbox = shard_key(cli_client._context.namespace, 0, "inbox")
        eventually(lambda: not server.xlen(inbox), "the timers are filed")
        for command in commands:
            assert "no event process" not in run(*command).stderr


def test_commands_warn_at_once_after_the_last_event_process_of_an_election_by_lease_was_killed(
    run: Run,
    cli_client: Tickwheel,
    tickwheel_server: PrivateServer,
    server: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver_watch, "RECONNECT_S", 0.05)
    command = ("enqueue", "jobs", "x", "--delay", "1h")
    with driven(cli_client, tickwheel_server.url, server, tmp_path / "log", "lease") as process:
        assert WARNING not in run(*command).stderr
        inbox = shard_key(cli_client._context.namespace, 0, "inbox")
        eventually(lambda: not server.xlen(inbox), "the timer is filed")
        process.kill()
    wait_until_nobody_listens(server, cli_client._context.namespace)
    assert f"warning: {WARNING} '{cli_client._context.namespace}'" in run(*command).stderr


def test_a_failed_message_that_waits_for_its_back_off_has_the_warning(run: Run, cli_client: Tickwheel) -> None:
    run("enqueue", "jobs", "x", "--id", "later")
    run("enqueue", "jobs", "x", "--id", "never")
    tokens = {line["id"]: line["token"] for line in documents(run("dequeue", "jobs", "--limit", "2", "--json"))}
    warning = f"warning: {WARNING} '{cli_client._context.namespace}'"
    assert warning in run("fail", "jobs", "later", "--token", tokens["later"], "--retry-in", "1h").stderr
    assert warning not in run("fail", "jobs", "never", "--token", tokens["never"], "--final").stderr


def test_only_the_first_route_to_tickwheel_has_the_warning(run: Run) -> None:
    def warns(*options: str) -> bool:
        return WARNING in run("route", "set", *options).stderr

    assert not warns("mail.send", "--to", "celery")
    assert warns("mail.send", "--to", "tickwheel", "--share", "0.1")
    assert not warns("mail.list", "--to", "tickwheel")
    assert not warns("mail.send", "--to", "tickwheel")
    run("route", "unset", "mail.list")
    assert warns("mail.send", "--to", "tickwheel")


def test_commands_that_need_no_timer_do_not_warn(run: Run) -> None:
    for command in (
        ("enqueue", "jobs", "x", "--id", "now"),
        ("get", "jobs", "now"),
        ("depth", "jobs"),
        ("queue", "show", "jobs"),
        ("route", "set", "mail.send", "--to", "celery"),
    ):
        assert "no event process" not in run(*command).stderr


LISTS = (("counts",), ("counts", "jobs", "--json"), ("queue", "list"), ("messages", "jobs", "--json"), ("shards",))


def test_commands_that_list_messages_and_shards_warn_until_an_event_process_drives(
    run: Run, cli_client: Tickwheel, tickwheel_server: PrivateServer, server: Any, tmp_path: Path
) -> None:
    cli_client.queue("jobs").enqueue()
    for command in LISTS:
        result = run(*command)
        assert f"{WARNING} '{cli_client._context.namespace}'" in result.stderr
        assert WARNING not in result.stdout
    with driven(cli_client, tickwheel_server.url, server, tmp_path / "log", None):
        assert [run(*command).stderr for command in LISTS] == [""] * len(LISTS)


@pytest.mark.parametrize("command", [("counts",), ("queue", "list")], ids=" ".join)
def test_a_namespace_without_queues_has_no_warning(run: Run, command: tuple[str, ...]) -> None:
    assert run(*command).stderr == "no queues\n"


def test_overdue_messages_have_a_warning_if_the_end_of_the_event_process_left_no_sign(
    run: Run, cli_client: Tickwheel, tickwheel_server: PrivateServer, server: Any, tmp_path: Path
) -> None:
    with driven(cli_client, tickwheel_server.url, server, tmp_path / "log", None) as process:
        process.kill()
    run("enqueue", "jobs", "--delay", "1ms")
    server.delete(shard_key(cli_client._context.namespace, 0, "inbox"))
    with pytest.MonkeyPatch.context() as patch:
        assert run("messages", "jobs").stderr == ""
        patch.setattr(driver_warning, "_OVERDUE", timedelta(0))
        assert "overdue messages in this list: 1." in run("messages", "jobs").stderr


def test_a_command_that_has_done_its_work_does_not_fail_if_a_shard_cannot_be_checked(
    run: Run, tickwheel_server: PrivateServer, namespace: str, server: Any
) -> None:
    other = f"{namespace}-of-two-shards"
    with Tickwheel(tickwheel_server.url, namespace=other, shards=2):
        id = next(f"order-{n}" for n in range(100) if shard_of("jobs", f"order-{n}".encode(), 2) == 0)
        # The message is on the other shard.
        server.set(shard_key(other, 1, "inbox"), "another type")
        result = run("--namespace", other, "enqueue", "jobs", "x", "--delay", "1h", "--id", id)
    tickwheel_server.clear(other)
    assert result.stdout == f"{id}\n"


@pytest.fixture
def alarm(cli_client: Tickwheel) -> Iterator[DriverAlarm]:
    """The alarm of a worker, which a test starts."""
    alarm = DriverAlarm(cli_client)
    yield alarm
    alarm.stop()


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_alarm, "CHECK_S", 0.02)
    monkeypatch.setattr(driver_alarm, "WARN_S", 0.2)
    monkeypatch.setattr(driver_alarm, "THOROUGH_S", 0.2)
    monkeypatch.setattr(driver_watch, "QUIET_MS", 3_000)


@pytest.mark.parametrize("election", [None, "lease"])
@pytest.mark.usefixtures("short_pauses")
def test_a_worker_warns_again_and_again_while_nobody_drives(
    alarm: DriverAlarm,
    cli_client: Tickwheel,
    tickwheel_server: PrivateServer,
    server: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    election: str | None,
) -> None:
    alarm.start()
    eventually(lambda: len(warnings(caplog)) >= 3, "the worker warns")
    queue = cli_client.queue("jobs")
    with driven(cli_client, tickwheel_server.url, server, tmp_path / "log", election) as process:
        queue.enqueue(delay=timedelta(milliseconds=10))
        assert queue.dequeue(wait=timedelta(seconds=20))
        # The signs of a driver change, so the namespace counts as driven for QUIET_MS.
        caplog.clear()
        process.kill()
        assert warnings(caplog) == []
    eventually(lambda: warnings(caplog), "the worker warns after the process was killed", 60)


def test_a_worker_warns_at_its_start_if_the_last_event_process_of_an_election_by_lease_was_killed(
    alarm: DriverAlarm,
    cli_client: Tickwheel,
    tickwheel_server: PrivateServer,
    server: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver_watch, "RECONNECT_S", 0.05)
    namespace = cli_client._context.namespace
    with driven(cli_client, tickwheel_server.url, server, tmp_path / "log", "lease") as process:
        process.kill()
    wait_until_nobody_listens(server, namespace)
    # An entry that stays in the inbox would be another sign that nobody drives.
    assert not server.xlen(shard_key(namespace, 0, "inbox"))
    alarm.start()
    eventually(lambda: warnings(caplog), "the worker warns")


@pytest.mark.usefixtures("short_pauses")
def test_a_running_worker_warns_if_the_last_event_process_was_killed_after_it_had_filed_all_timers(
    alarm: DriverAlarm,
    cli_client: Tickwheel,
    tickwheel_server: PrivateServer,
    server: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver_watch, "RECONNECT_S", 0.05)
    # So that the inbox alone can never be the reason of a warning.
    monkeypatch.setattr(driver_watch, "QUIET_MS", 3_600_000)
    inbox = shard_key(cli_client._context.namespace, 0, "inbox")
    with driven(cli_client, tickwheel_server.url, server, tmp_path / "log", "lease") as process:
        alarm.start()
        cli_client.queue("jobs").enqueue(delay=timedelta(hours=1))
        eventually(lambda: not server.xlen(inbox), "the timer is filed")
        process.kill()
    eventually(lambda: len(warnings(caplog)) >= 2, "the worker warns again and again")
    assert not server.xlen(inbox)


def test_a_worker_that_ends_before_it_has_started_does_not_begin_to_check(cli_client: Tickwheel) -> None:
    driver = LastResortDriver(None)
    driver.begin_stop()
    before = set(threading.enumerate())
    driver.start(cli_client)
    assert [thread.name for thread in set(threading.enumerate()) - before] == []
    driver.stop()
