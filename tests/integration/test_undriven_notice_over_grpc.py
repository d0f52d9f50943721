"""A client of the service logs a warning if no event process makes its messages deliverable."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.fault.event_processes import EventProcessChild, wait_for_a_claim
from tests.integration.service_thread import ServiceThread
from tests.support.earlier_service import remove_rpc
from tests.support.undriven_clients import checks, run_script
from tests.support.wait_until import eventually, eventually_in_task
from tickwheel import Tickwheel, aio
from tickwheel.client import driver_watch, undriven_notice
from tickwheel.client.admin import Admin
from tickwheel.client.grpc.blocking_executor import GrpcExecutor
from tickwheel.service import driver_check
from tickwheel.service.driver_check import DriverCheck
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

HOUR = timedelta(hours=1)
WARNING = "no event process drives namespace"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_watch, "RECONNECT_S", 0.05)
    monkeypatch.setattr(driver_check, "CONFIRM_S", 0.05)


@pytest.fixture
def client(real_time_service: ServiceThread, namespace: str) -> Iterator[Tickwheel]:
    with Tickwheel(real_time_service.url, namespace=namespace) as tickwheel:
        yield tickwheel


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line.message for line in caplog.records if (line.name, line.levelno) == ("tickwheel", logging.WARNING)]


def ask(client: Tickwheel) -> str:
    """Return what the service answers to a client."""
    admin = Admin(client)
    return admin.run(admin.backend.check_drivers())


def test_a_client_whose_messages_nobody_makes_deliverable_logs_one_warning_a_minute(
    client: Tickwheel, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        client.queue("jobs").enqueue(delay=HOUR)
        eventually(lambda: not checks(), "no check is in progress")
    [warning] = warnings(caplog)
    assert warning.startswith(f"{WARNING} {client._context.namespace!r}")


def test_an_asyncio_client_logs_the_same_warning(
    real_time_service: ServiceThread, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def enqueue() -> None:
        async with aio.Tickwheel(real_time_service.url, namespace=namespace) as tickwheel:
            await tickwheel.queue("jobs").enqueue(delay=HOUR)
            await eventually_in_task(lambda: warnings(caplog), "the client warns")

    asyncio.run(enqueue())


def test_a_script_warns_before_it_ends(real_time_service: ServiceThread, namespace: str) -> None:
    assert run_script(real_time_service.url, namespace).startswith(f"{WARNING} {namespace!r}")


def test_a_client_warns_later_if_its_driver_is_killed_before_it_files_the_timer(
    client: Tickwheel,
    tickwheel_server: PrivateServer,
    server: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    namespace = client._context.namespace
    monkeypatch.setattr(driver_check, "DRIVEN_S", 0.0)
    monkeypatch.setattr(driver_check, "_COMMANDS_PER_S", 1_000_000)
    with EventProcessChild(tickwheel_server.url, namespace, tmp_path / "log") as process:
        wait_for_a_claim(server, namespace, None)
        process.kill()
    monkeypatch.setattr(driver_watch, "QUIET_MS", 500)
    client.queue("jobs").enqueue(delay=HOUR)
    eventually(lambda: warnings(caplog), "the second part of the check warns")
    assert warnings(caplog)[0].startswith(WARNING)


@pytest.mark.parametrize("election", [None, "lease"])
def test_a_client_whose_namespace_is_driven_logs_nothing(
    client: Tickwheel,
    tickwheel_server: PrivateServer,
    server: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    election: str | None,
) -> None:
    # A driver files a new timer within two seconds.
    monkeypatch.setattr(driver_watch, "QUIET_MS", 3_000)
    namespace = client._context.namespace
    with EventProcessChild(tickwheel_server.url, namespace, tmp_path / "log", election=election):
        wait_for_a_claim(server, namespace, None)
        client.queue("jobs").enqueue(delay=HOUR)
        assert checks()
        eventually(lambda: not checks(), "the check has ended")
        assert ask(client) == ""
    assert warnings(caplog) == []


def test_a_client_of_an_older_service_asks_once_and_logs_nothing(
    client: Tickwheel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[str] = []
    begin_call = GrpcExecutor._begin_call

    def recorded(executor: GrpcExecutor, step: Any, *args: Any) -> Any:
        asked.extend([step.method] if step.method == "CheckDrivers" else [])
        return begin_call(executor, step, *args)

    monkeypatch.setattr(GrpcExecutor, "_begin_call", recorded)
    remove_rpc(monkeypatch, "CheckDrivers")
    monkeypatch.setattr(driver_watch, "QUIET_MS", 1)
    monkeypatch.setattr(undriven_notice, "CHECK_PAUSE_S", 0.0)
    for _ in range(3):
        client.queue("jobs").enqueue(delay=HOUR)
        eventually(lambda: not checks(), "no check is in progress")
    assert ask(client) == ""
    assert asked == ["CheckDrivers"]
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_check_that_the_service_does_not_answer_delays_no_call_and_ends_with_its_timeout(
    client: Tickwheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Event()

    async def hang(check: DriverCheck) -> str:
        asked.set()
        await asyncio.Event().wait()
        return ""

    monkeypatch.setattr(DriverCheck, "find_warning", hang)
    queue = client.queue("jobs")
    queue.enqueue(delay=HOUR)
    assert asked.wait(20)
    queue.enqueue(delay=HOUR, id="next")
    assert queue.get("next").state == "invisible"
    assert [check.daemon for check in checks()] == [False]
    client.close()
    eventually(lambda: not checks(), "the check has ended")
