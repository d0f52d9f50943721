"""A namespace that no event process drives: commands and workers warn over gRPC as they do over Redis."""

import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.fault.event_processes import EventProcessChild, wait_for_a_claim
from tests.integration.cli.command_runner import Run
from tests.integration.service_thread import ServiceThread
from tests.support.earlier_service import remove_rpc
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.client import driver_watch
from tickwheel.client.grpc.grpc_queue_backend import GrpcDriverWatch
from tickwheel.service import driver_check
from tickwheel.storage.keys import election_key
from tickwheel.testing import PrivateServer
from tickwheel.worker import driver_alarm
from tickwheel.worker.driver_alarm import DriverAlarm
from tickwheel.worker.last_resort_driver import LastResortDriver

pytestmark = pytest.mark.integration

WARNING = "no event process drives namespace"
COMMANDS = (
    ("enqueue", "jobs", "x", "--id", "later", "--delay", "1h"),
    ("reschedule", "jobs", "later", "--delay", "2h"),
    ("route", "set", "mail.send", "--to", "tickwheel"),
    ("counts",),
    ("messages", "jobs"),
)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_watch, "RECONNECT_S", 0.05)
    monkeypatch.setattr(driver_check, "CONFIRM_S", 0.05)
    monkeypatch.setattr(driver_check, "DRIVEN_S", 0.0)
    monkeypatch.setattr(driver_check, "WARNING_S", 0.0)
    monkeypatch.setattr(driver_check, "_COMMANDS_PER_S", 1_000_000)
    monkeypatch.setattr(driver_alarm, "CHECK_S", 0.02)
    monkeypatch.setattr(driver_alarm, "WARN_S", 0.2)
    monkeypatch.setattr(driver_alarm, "THOROUGH_S", 0.1)


@pytest.fixture
def cli_client(
    real_time_service: ServiceThread, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Tickwheel]:
    """A client of the service, whose URL is set in the environment."""
    monkeypatch.setenv("TICKWHEEL_URL", real_time_service.url)
    monkeypatch.setenv("TICKWHEEL_NAMESPACE", namespace)
    with Tickwheel(real_time_service.url, namespace=namespace) as tickwheel:
        yield tickwheel


@pytest.fixture
def alarm(cli_client: Tickwheel) -> Iterator[LastResortDriver]:
    """What a worker starts. It never drives over gRPC."""
    driver = LastResortDriver(None)
    yield driver
    driver.stop()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings of workers."""
    return [line.message for line in caplog.records if line.name == "tickwheel.worker" and WARNING in line.message]


def test_commands_warn_on_stderr_until_an_event_process_drives(
    run: Run, cli_client: Tickwheel, tickwheel_server: PrivateServer, server: Any, tmp_path: Path
) -> None:
    namespace = cli_client._context.namespace
    for command in COMMANDS:
        result = run(*command)
        assert f"warning: {WARNING} '{namespace}'" in result.stderr, command
        assert WARNING not in result.stdout
    with EventProcessChild(tickwheel_server.url, namespace, tmp_path / "log"):
        wait_for_a_claim(server, namespace, None)
        for command in COMMANDS:
            assert WARNING not in run(*command).stderr, command


def test_a_command_warns_after_the_last_event_process_of_an_election_by_lease_was_killed(
    run: Run, cli_client: Tickwheel, tickwheel_server: PrivateServer, server: Any, tmp_path: Path
) -> None:
    namespace = cli_client._context.namespace
    with EventProcessChild(tickwheel_server.url, namespace, tmp_path / "log", election="lease") as process:
        wait_for_a_claim(server, namespace, None)
        process.kill()
    channel = election_key(namespace)
    eventually(lambda: server.execute_command("PUBSUB", "SHARDNUMSUB", channel)[1] == 0, "its connection has ended")
    assert WARNING in run(*COMMANDS[0]).stderr


@pytest.mark.usefixtures("cli_client")
def test_a_command_does_not_warn_and_does_not_fail_with_an_older_service(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_rpc(monkeypatch, "CheckDrivers")
    for command in COMMANDS:
        assert "warning" not in run(*command).stderr


def test_a_worker_warns_at_its_start_and_again_and_again_while_nobody_drives(
    alarm: LastResortDriver,
    cli_client: Tickwheel,
    tickwheel_server: PrivateServer,
    server: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    alarm.start(cli_client)
    eventually(lambda: len(warnings(caplog)) >= 3, "the worker warns")
    queue, namespace = cli_client.queue("jobs"), cli_client._context.namespace
    with EventProcessChild(tickwheel_server.url, namespace, tmp_path / "log", election="lease") as process:
        queue.enqueue(delay=timedelta(milliseconds=10))
        assert queue.dequeue(wait=timedelta(seconds=20))
        caplog.clear()
        process.kill()
    eventually(lambda: warnings(caplog), "the worker warns after the process was killed", 60)


def test_a_worker_of_an_older_service_does_not_warn(
    real_time_service: ServiceThread, namespace: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    remove_rpc(monkeypatch, "CheckDrivers")
    checks: list[bool] = []
    check = GrpcDriverWatch.check

    def recorded(watch: GrpcDriverWatch, *, is_thorough: bool = False) -> Any:
        checks.append(is_thorough)
        return check(watch, is_thorough=is_thorough)

    monkeypatch.setattr(GrpcDriverWatch, "check", recorded)
    with Tickwheel(real_time_service.url, namespace=namespace) as client:
        alarm = DriverAlarm(client)
        alarm.start()
        eventually(lambda: sum(checks) >= 3, "three thorough checks")
        alarm.stop()
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []
