"""A client logs a warning if no event process makes its messages deliverable. Both clients use the same check."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.fault.event_processes import EventProcessChild, wait_for_a_claim
from tests.support.undriven_clients import checks, run_script
from tests.support.wait_until import eventually, eventually_in_task
from tickwheel import NewMessage, Tickwheel, aio
from tickwheel.client import driver_watch, undriven_notice
from tickwheel.storage.fence import pack_fence
from tickwheel.storage.keys import shard_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_watch, "QUIET_MS", 500)


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    def read() -> list[str]:
        lines = [(line.name, line.levelno, line.message) for line in caplog.records]
        return [text for name, level, text in lines if (name, level) == ("tickwheel", logging.WARNING)]

    return read


@pytest.fixture
def client(tickwheel_server: PrivateServer, namespace: str) -> Iterator[Tickwheel]:
    with Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel:
        yield tickwheel


@pytest.fixture
def claimed(client: Tickwheel, server: Any) -> Tickwheel:
    """The client of a namespace that an event process has driven. The process was killed."""
    key = shard_key(client._context.namespace, 0, "clock")
    server.hset(key, mapping={"fence": pack_fence(3, 7), "election": "lockfile"})
    return client


@pytest.mark.parametrize("fixture", ["client", "claimed"])
def test_a_client_whose_messages_nobody_makes_deliverable_logs_one_warning_a_minute(
    request: pytest.FixtureRequest, warnings: Callable[[], list[str]], fixture: str
) -> None:
    client = request.getfixturevalue(fixture)
    queue = client.queue("jobs")
    for _ in range(3):
        queue.enqueue_many([NewMessage(), NewMessage(delay=HOUR)])
        eventually(lambda: not checks(), "no check is in progress")
    [warning] = warnings()
    assert warning.startswith(f"no event process drives namespace {client._context.namespace!r}")


def test_clients_of_one_program_log_one_warning_a_minute_about_a_namespace(
    tickwheel_server: PrivateServer, namespace: str, warnings: Callable[[], list[str]]
) -> None:
    for n in range(4):
        with Tickwheel(tickwheel_server.url, namespace=namespace + "-other" * (n % 2)) as client:
            client.queue("jobs").enqueue(delay=HOUR)
            eventually(lambda: not checks(), "no check is in progress")
    first, other = warnings()
    assert f"namespace {namespace!r}" in first
    assert f"namespace {namespace + '-other'!r}" in other


def test_a_client_that_has_found_a_driver_checks_again_within_the_minute(
    claimed: Tickwheel, server: Any, warnings: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undriven_notice, "CHECK_PAUSE_S", 0.0)
    queue = claimed.queue("jobs")
    queue.enqueue(delay=HOUR)
    clock = shard_key(claimed._context.namespace, 0, "clock")
    fences = count(8)

    def driver_has_moved() -> bool:
        server.hset(clock, "fence", pack_fence(3, next(fences)))
        return not checks()

    eventually(driver_has_moved, "the first check has found a driver")
    assert warnings() == []
    queue.enqueue(delay=HOUR)
    eventually(warnings, "the second check warns")


def test_after_a_claim_was_found_a_check_has_only_the_part_that_does_not_delay_the_end_of_the_program(
    claimed: Tickwheel, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undriven_notice, "CHECK_PAUSE_S", 0.0)
    queue = claimed.queue("jobs")
    queue.enqueue(delay=HOUR)
    eventually(lambda: not checks(), "the first check has ended")

    monkeypatch.setattr(driver_watch, "QUIET_MS", 60_000)
    connections = server.info("stats")["total_connections_received"]
    queue.enqueue(delay=HOUR)
    assert [check.daemon for check in checks()] == [True]
    assert server.info("stats")["total_connections_received"] == connections
    claimed.close()
    eventually(lambda: not checks(), "the check has ended")


def test_a_script_whose_namespace_was_never_driven_warns_before_it_ends(
    tickwheel_server: PrivateServer, namespace: str
) -> None:
    assert run_script(tickwheel_server.url, namespace).startswith(f"no event process drives namespace {namespace!r}")


def test_a_client_that_starts_an_event_process_does_not_warn_before_the_process_drives(
    tickwheel_server: PrivateServer,
    namespace: str,
    warnings: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver_watch, "QUIET_MS", 60_000)
    with Tickwheel(tickwheel_server.url, namespace=namespace, drive=True) as tickwheel:
        tickwheel.queue("jobs").enqueue(delay=HOUR)
        eventually(lambda: [check.daemon for check in checks()] == [True], "only the second part is in progress")
    assert warnings() == []


def test_a_client_with_the_clock_of_a_test_logs_nothing(
    tickwheel: Tickwheel, warnings: Callable[[], list[str]]
) -> None:
    tickwheel.queue("jobs").enqueue(delay=HOUR)
    eventually(lambda: not checks(), "no check is in progress")
    assert warnings() == []


def test_an_asyncio_client_logs_the_same_warning(
    tickwheel_server: PrivateServer, namespace: str, warnings: Callable[[], list[str]]
) -> None:
    async def enqueue() -> None:
        async with aio.Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel:
            await tickwheel.queue("jobs").enqueue(delay=HOUR)
            await eventually_in_task(warnings, "the client warns")

    asyncio.run(enqueue())


@pytest.mark.parametrize("election", [None, "lease"])
def test_a_client_whose_namespace_is_driven_logs_nothing(
    client: Tickwheel,
    tickwheel_server: PrivateServer,
    server: Any,
    tmp_path: Path,
    warnings: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
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
    assert warnings() == []


def test_a_message_that_is_due_begins_no_check(client: Tickwheel) -> None:
    client.queue("jobs").enqueue_many([NewMessage(), NewMessage(delay=timedelta(0))])
    assert not checks()


def test_a_closed_client_ends_its_check(
    claimed: Tickwheel, warnings: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_watch, "QUIET_MS", 60_000)
    claimed.queue("jobs").enqueue(delay=HOUR)
    assert checks()
    claimed.close()
    eventually(lambda: not checks(), "the check has ended")
    assert warnings() == []


def test_a_check_of_a_namespace_that_was_deleted_logs_nothing(
    claimed: Tickwheel, tickwheel_server: PrivateServer, warnings: Callable[[], list[str]]
) -> None:
    claimed.queue("jobs").enqueue(delay=HOUR)
    eventually(lambda: [check.daemon for check in checks()] == [True], "only the second part is in progress")
    tickwheel_server.clear(claimed._context.namespace)
    eventually(lambda: not checks(), "the check has ended")
    assert warnings() == []
