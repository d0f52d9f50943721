"""The service warns about each namespace that its calls use and that nobody drives."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from services.serving_program import ServingProgram
from tests.fault.event_processes import EventProcessChild
from tests.integration.service_namespace import open_namespace
from tests.support.wait_until import eventually, eventually_in_task
from tickwheel import Tickwheel
from tickwheel.client import driver_watch
from tickwheel.service import namespace_alarm
from tickwheel.service.namespace_alarm import NamespaceAlarm
from tickwheel.service.namespaces import Namespace
from tickwheel.storage.keys import shard_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

# Runs the command line with short pauses.
SHORT = """
from tickwheel.client import driver_watch
from tickwheel.service import namespace_alarm
driver_watch.QUIET_MS, namespace_alarm.UNCLAIMED_MS, namespace_alarm.CHECK_S = 100, 0.0, 0.05
from tickwheel.cli import main
main()
"""


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespace_alarm, "CHECK_S", 0.01)
    monkeypatch.setattr(namespace_alarm, "COMMANDS_PER_S", 1_000)
    monkeypatch.setattr(namespace_alarm, "WARN_S", 0.0)
    monkeypatch.setattr(namespace_alarm, "LINE_S", 0.0)
    monkeypatch.setattr(namespace_alarm, "UNCLAIMED_MS", 0.0)
    monkeypatch.setattr(driver_watch, "QUIET_MS", 20)


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the namespaces of the warnings."""
    lines = [record.message for record in caplog.records if record.name == "tickwheel.service"]
    return [line.split("'")[1] for line in lines if line.startswith("no event process drives namespace")]


@asynccontextmanager
async def checked(
    server: PrivateServer, names: Iterable[str], own: str = "", deleted: Iterable[str] = ()
) -> AsyncIterator[list[Namespace]]:
    """Open the namespaces, delete some of them, and run the alarm."""
    async with AsyncExitStack() as stack:
        namespaces = [await stack.enter_async_context(open_namespace(server, name)) for name in names]
        for name in deleted:
            server.clear(name)
        task = asyncio.create_task(NamespaceAlarm(lambda: namespaces, own).run())
        try:
            yield namespaces
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def count_checks(namespace: Namespace) -> list[float]:
    """Return the times of the plans that the namespace runs from now on."""
    times: list[float] = []
    run = namespace.run

    async def timed(plan: Any, effects: Any = None) -> Any:
        times.append(monotonic())
        return await run(plan, effects)

    namespace.run = timed  # type: ignore[method-assign]
    return times


@pytest.mark.usefixtures("short_pauses")
def test_each_namespace_except_the_own_one_is_warned_about_while_calls_use_it(
    tickwheel_server: PrivateServer, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    own, other, third = (f"{namespace}-{n}" for n in range(3))

    async def check() -> None:
        async with checked(tickwheel_server, (own, other, third), own) as (_, second, _):
            await eventually_in_task(lambda: len(warned(caplog)) == 2, "both are warned about")
            checks = count_checks(second)
            await eventually_in_task(lambda: len(checks) > 3, "further checks")
            assert sorted(warned(caplog)) == [other, third]
            # A further call uses the namespace.
            second.is_used = True
            await eventually_in_task(lambda: len(warned(caplog)) > 2, "another warning")
            assert warned(caplog)[2:] == [other]

    try:
        asyncio.run(check())
    finally:
        for name in (own, other, third):
            tickwheel_server.clear(name)


@pytest.mark.usefixtures("short_pauses")
def test_neither_a_driven_nor_a_deleted_namespace_is_warned_about(
    tickwheel_server: PrivateServer, namespace: str, server: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deleted = f"{namespace}-deleted"

    async def check() -> None:
        async with checked(tickwheel_server, (namespace, deleted), deleted=(deleted,)) as namespaces:
            times = [count_checks(each) for each in namespaces]
            await eventually_in_task(lambda: all(len(each) > 20 for each in times), "the namespaces are checked")
            assert warned(caplog) == []

    with (
        Tickwheel(tickwheel_server.url, namespace=namespace),
        EventProcessChild(tickwheel_server.url, namespace, tmp_path / "log"),
    ):
        eventually(lambda: server.hget(shard_key(namespace, 0, "clock"), "fence"), "the event process drives")
        asyncio.run(check())


def test_the_checks_of_many_shards_are_far_apart(
    tickwheel_server: PrivateServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespace_alarm, "CHECK_S", 0.0)
    monkeypatch.setattr(namespace_alarm, "COMMANDS_PER_S", 160)

    async def check() -> list[float]:
        async with checked(tickwheel_server, (namespace,)) as (opened,):
            times = count_checks(opened)
            await eventually_in_task(lambda: len(times) >= 4, "four checks")
            return times

    with Tickwheel(tickwheel_server.url, namespace=namespace, shards=8):
        times = asyncio.run(check())
    # 16 commands in each check.
    assert times[3] - times[0] >= 3 * 0.1


def test_the_log_of_the_service_has_the_warning(
    tickwheel_server: PrivateServer, namespace: str, tmp_path: Path
) -> None:
    command = ("-c", SHORT, "serve", "--listen", "127.0.0.1:0", "--drive", "never", "--url", tickwheel_server.url)
    with ServingProgram(tmp_path, *command) as service, Tickwheel(service.url, namespace=namespace):
        eventually(lambda: f"no event process drives namespace '{namespace}'" in service.log, "the service warns")
