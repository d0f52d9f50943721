"""If wake-ups may be lost, each waiting dequeue checks its queue immediately. Other wake-ups are disabled here."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.fault.faulty_server import FaultyServer
from tests.property.mutants import Mutant, load_mutant
from tests.support.command_stats import calls_of
from tests.support.wait_until import eventually, eventually_in_task
from tickwheel import Forbidden, Message, NewMessage, Tickwheel, aio
from tickwheel.redis import subscriptions
from tickwheel.redis.wait_list import WaitList

pytestmark = pytest.mark.fault

WAITERS = 5
# Longer than SOON_S, and short enough for a test that fails.
LONG = timedelta(seconds=30)
SOON_S = 15.0
SILENT = Mutant("no wake-up is sent", "_transition", "call('SPUBLISH', wake, new_ready_count)", "")


@pytest.fixture(autouse=True)
def _no_other_wake_ups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Disable wake-ups by messages, the check of each queue every second, and the retry of a refused subscription."""
    monkeypatch.setattr(WaitList, "begin_sweep", lambda _: None)
    monkeypatch.setattr(subscriptions, "REFUSED_S", LONG.total_seconds())
    with load_mutant(SILENT, tmp_path):
        yield


@pytest.fixture
def server(faulty: FaultyServer) -> Iterator[Any]:
    with faulty.client() as client:
        client.execute_command("ACL", "SETUSER", "worker", "on", ">p", "~*", "allchannels", "+@all")
        yield client


@pytest.fixture
def url(faulty: FaultyServer, server: Any) -> str:
    return faulty.url.replace("unix://", "unix://worker:p@")


def count_checks(server: Any) -> int:
    return calls_of(server, "exists")


def all_wait(server: Any, before: int) -> bool:
    """Return whether all dequeues wait. Each checks its queue before it joins the wait list and before it waits."""
    return count_checks(server) >= before + 2 * WAITERS


def test_all_threads_check_their_queues_after_their_subscription_was_cut(url: str, server: Any) -> None:
    with Tickwheel(url, namespace="again") as tickwheel, ThreadPoolExecutor(WAITERS) as threads:
        work = tickwheel.create_queue("work")
        waiting = waiting_threads(tickwheel, threads, server)
        work.enqueue_many([NewMessage()] * WAITERS)
        assert not any(future.done() for future in waiting)
        server.client_kill_filter(_type="pubsub")
        assert [len(future.result(SOON_S)) for future in waiting] == [1] * WAITERS


def test_all_threads_report_that_their_right_to_subscribe_was_withdrawn(url: str, server: Any) -> None:
    with Tickwheel(url, namespace="again") as tickwheel, ThreadPoolExecutor(WAITERS) as threads:
        tickwheel.create_queue("work")
        waiting = waiting_threads(tickwheel, threads, server)
        # The server closes connections with subscriptions that are no longer allowed.
        server.execute_command("ACL", "SETUSER", "worker", "resetchannels")
        assert [type(future.exception(SOON_S)) for future in waiting] == [Forbidden] * WAITERS


def waiting_threads(tickwheel: Tickwheel, threads: ThreadPoolExecutor, server: Any) -> list[Future[list[Message]]]:
    before = count_checks(server)
    waiting = [threads.submit(tickwheel.queue("work").dequeue, wait=LONG) for _ in range(WAITERS)]
    eventually(lambda: all_wait(server, before), "all threads wait")
    return waiting


def test_all_tasks_check_their_queues_after_their_subscription_was_cut(url: str, server: Any) -> None:
    async def wait_through_a_cut() -> list[int]:
        async with aio.Tickwheel(url, namespace="again") as tickwheel:
            work = await tickwheel.create_queue("work")
            waiting = await waiting_tasks(work, server)
            await work.enqueue_many([NewMessage()] * WAITERS)
            assert not any(future.done() for future in waiting)
            server.client_kill_filter(_type="pubsub")
            async with asyncio.timeout(SOON_S):
                return [len(messages) for messages in await asyncio.gather(*waiting)]

    assert asyncio.run(wait_through_a_cut()) == [1] * WAITERS


def test_all_tasks_report_that_their_right_to_subscribe_was_withdrawn(url: str, server: Any) -> None:
    async def wait_until_refused() -> list[Any]:
        async with aio.Tickwheel(url, namespace="again") as tickwheel:
            waiting = await waiting_tasks(await tickwheel.create_queue("work"), server)
            server.execute_command("ACL", "SETUSER", "worker", "resetchannels")
            async with asyncio.timeout(SOON_S):
                return await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(error) for error in asyncio.run(wait_until_refused())] == [Forbidden] * WAITERS


async def waiting_tasks(work: aio.Queue, server: Any) -> list[asyncio.Task[list[aio.Message]]]:
    before = count_checks(server)
    waiting = [asyncio.create_task(work.dequeue(wait=LONG)) for _ in range(WAITERS)]
    await eventually_in_task(lambda: all_wait(server, before), "all tasks wait", SOON_S)
    return waiting
