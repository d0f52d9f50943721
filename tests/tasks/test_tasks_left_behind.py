"""Asyncio tasks that a task under test has left behind: they end with the test, and reach no other server."""

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta

import pytest

from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.tasks import TaskApp
from tickwheel.testing import PrivateServer, VirtualClock, sandbox
from tickwheel.testing.task_tester import open_task_tester

pytestmark = pytest.mark.integration

DAY = timedelta(days=1)
app = TaskApp()
left: list[asyncio.Task[None]] = []
threads: list[threading.Thread] = []


@app.task
async def note() -> None:
    threads.append(threading.current_thread())


async def send_until_cancelled() -> None:
    while True:
        await note.alater(DAY)


async def send_at_the_end() -> None:
    try:
        await asyncio.sleep(3600)
    finally:
        await note.alater(DAY)


async def ignore_every_cancellation() -> None:
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)


@app.task
async def leave(work: str) -> None:
    """Begins work that does not end with the task."""
    threads.append(threading.current_thread())
    left.append(asyncio.create_task(globals()[work]()))


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    left.clear()
    threads.clear()


@pytest.fixture
def real_system(tickwheel_server: PrivateServer) -> Iterator[Tickwheel]:
    """The client of the namespace that the app has outside of the block of a tester."""
    before = app.where
    with sandbox(tickwheel_server) as (tickwheel, _):
        app.move(url=tickwheel_server.url, namespace=tickwheel._context.namespace, clock="_clock_test")
        yield tickwheel
        app.move(**{"clock": "_clock", **before})


def test_testers_leave_no_thread_and_no_descriptor(tickwheel: Tickwheel, clock: VirtualClock) -> None:
    def run_one() -> None:
        with open_task_tester(app, tickwheel, clock) as tasks:
            note.now()
            assert [outcome.error for outcome in tasks.run_due()] == [None]

    run_one()
    thread_count, descriptor_count = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        run_one()
    assert threading.active_count() <= thread_count
    assert len(os.listdir("/proc/self/fd")) <= descriptor_count
    assert len(set(threads)) == 21


def test_a_task_that_was_left_behind_is_cancelled_and_reaches_no_other_server(
    tickwheel: Tickwheel, clock: VirtualClock, real_system: Tickwheel
) -> None:
    with open_task_tester(app, tickwheel, clock) as tasks:
        leave.now("send_until_cancelled")
        tasks.run_due()
    assert left[0].cancelled()
    assert real_system.queues() == []


def test_a_task_that_was_left_behind_can_use_its_app_until_it_has_ended(
    tickwheel: Tickwheel, clock: VirtualClock, real_system: Tickwheel
) -> None:
    with open_task_tester(app, tickwheel, clock) as tasks:
        leave.now("send_at_the_end")
        tasks.run_due()
    assert [sent.due for sent in tasks.sent(note)] == [clock.now + DAY]
    assert real_system.queues() == []


def test_a_task_that_ignores_its_cancellation_is_stopped(
    tickwheel: Tickwheel, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tickwheel.worker.async_runner._STOP_S", 0.1)
    with open_task_tester(app, tickwheel, clock) as tasks:
        leave.now("ignore_every_cancellation")
        tasks.run_due()
    eventually(lambda: not threads[0].is_alive(), "the thread of the event loop has ended")
    assert not left[0].done()
