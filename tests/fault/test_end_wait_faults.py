"""A call that waits for the end of a message notices the end although its announcement is lost or the server fails."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.fault.faulty_server import FaultyServer
from tests.property.mutants import Mutant, load_mutant
from tests.support.wait_until import eventually, eventually_in_task
from tickwheel import MessageView, Queue, Tickwheel
from tickwheel.operations import inspect
from tickwheel.operations.inspect import EndWait
from tickwheel.plan import AwaitWakeup
from tickwheel.tasks import TaskApp

pytestmark = pytest.mark.fault

# Longer than a call of a test needs, and short enough for a test that fails.
LONG_S = 15.0
UNANNOUNCED = Mutant("no end is announced", "_ended", "call('SPUBLISH', ended, table.concat(ended_names))", "")
app = TaskApp()


@app.task(queue="q")
def greet(user: int) -> str:
    return f"welcome {user}"


class Calls:
    """How often the calls of this process have begun to read their message, and to sleep."""

    def __init__(self) -> None:
        self.reads = self.sleeps = 0


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Count reads and sleeps. Only an announcement, or the loss of announcements, ends a sleep early."""
    counted = Calls()
    read = EndWait._read

    def counted_read(wait: EndWait, *, is_last: bool) -> Any:
        counted.reads += 1
        return read(wait, is_last=is_last)

    def counted_sleep(waiter: Any, seconds: float) -> AwaitWakeup:
        counted.sleeps += 1
        return AwaitWakeup(waiter, seconds)

    monkeypatch.setattr(EndWait, "_read", counted_read)
    monkeypatch.setattr(inspect, "AwaitWakeup", counted_sleep)
    monkeypatch.setattr(inspect, "RECHECK_S", 3_600.0)
    return counted


@pytest.fixture
def queue(faulty: FaultyServer, open_client: Callable[..., AbstractContextManager[Any]]) -> Iterator[Queue]:
    with open_client(faulty.url, namespace="ends", drive=False) as tickwheel:
        queue = tickwheel.create_queue("q")
        queue.enqueue(id="m")
        yield queue


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def begin(queue: Queue, threads: ThreadPoolExecutor, calls: Calls) -> "Future[MessageView]":
    """Begin to wait for the end of the message, and return when the call sleeps."""
    waiting = threads.submit(queue.get, "m", wait=LONG_S)
    eventually(lambda: calls.sleeps or waiting.done(), "the call sleeps")
    return waiting


def test_a_later_read_finds_an_end_whose_announcement_is_lost(
    queue: Queue, threads: ThreadPoolExecutor, calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspect, "RECHECK_S", 0.2)
    waiting = begin(queue, threads, calls)
    with load_mutant(UNANNOUNCED, tmp_path):
        queue.cancel("m")
        eventually(waiting.done, "the call has read its message", LONG_S / 2)
    assert waiting.result(0).state == "cancelled"


def test_an_end_is_found_after_the_connection_of_the_subscriptions_was_cut(
    faulty: FaultyServer, queue: Queue, threads: ThreadPoolExecutor, calls: Calls, tmp_path: Path
) -> None:
    waiting = begin(queue, threads, calls)
    with load_mutant(UNANNOUNCED, tmp_path), faulty.client() as server:
        queue.cancel("m")
        assert not waiting.done()
        server.client_kill_filter(_type="pubsub")
        eventually(waiting.done, "the call has read its message", LONG_S / 2)
    assert waiting.result(0).state == "cancelled"


def test_an_end_is_found_after_the_server_was_killed_and_started_again(
    faulty: FaultyServer, queue: Queue, threads: ThreadPoolExecutor, calls: Calls
) -> None:
    waiting = begin(queue, threads, calls)
    faulty.restart()
    queue.cancel("m")
    eventually(waiting.done, "the call has read its message", LONG_S / 2)
    assert waiting.result(0).state == "cancelled"


def test_an_end_is_found_after_the_server_was_frozen(
    faulty: FaultyServer, queue: Queue, threads: ThreadPoolExecutor, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspect, "RECHECK_S", 0.2)
    waiting = begin(queue, threads, calls)
    with faulty.paused():
        cancelled = threads.submit(queue.cancel, "m")
        # Each sleep follows a read, and there is one more read before the subscription.
        eventually(lambda: calls.reads == calls.sleeps + 2, "a read of the call waits in the frozen server")
        assert not waiting.done()
    eventually(waiting.done, "the call has read its message", LONG_S / 2)
    assert waiting.result(0).state == "cancelled"
    assert cancelled.result(LONG_S).state == "cancelled"


def test_a_program_receives_the_result_of_a_task_after_the_server_was_killed(
    faulty: FaultyServer, calls: Calls
) -> None:
    def run_task() -> None:
        with Tickwheel(faulty.url, namespace="ends", drive=False) as worker:
            [message] = worker.queue("q").dequeue(wait=LONG_S)
            message.complete('"welcome 7"')

    async def wait_through_a_kill() -> str:
        app.move(url=faulty.url, namespace="ends", drive=False)
        try:
            sent = await greet.anow(7)
            waiting = asyncio.create_task(sent.aresult(wait=LONG_S))
            await eventually_in_task(lambda: calls.sleeps or waiting.done(), "the call sleeps")
            await asyncio.to_thread(faulty.restart)
            await asyncio.to_thread(run_task)
            async with asyncio.timeout(LONG_S / 2):
                return await waiting
        finally:
            await app.aclose()

    assert asyncio.run(wait_through_a_kill()) == "welcome 7"
