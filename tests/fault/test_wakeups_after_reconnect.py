"""Where wake-ups may have been lost, everybody that sleeps looks again at once: nobody here is woken otherwise."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.fault.faulty_server import FaultyServer
from tests.property.mutants import Mutant, load_mutant
from tests.support.wait_until import eventually, eventually_in_task
from tickwheel import Forbidden, Message, NewMessage, Tickwheel, aio
from tickwheel.redis import subscriptions
from tickwheel.redis.wait_list import WaitList

pytestmark = pytest.mark.fault

SLEEPERS = 5
# Longer than a test waits for them, and not longer than one that fails may take.
LONG = timedelta(seconds=30)
SOON_S = 15.0
SILENT = Mutant("nobody is woken", "_transition", "call('SPUBLISH', wake, made_ready)", "")


@pytest.fixture(autouse=True)
def _nothing_else_wakes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No message, no backstop, and no second try to subscribe where the first was refused."""
    monkeypatch.setattr(WaitList, "sweep", lambda _: None)
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


def looks(server: Any) -> int:
    return int(server.info("commandstats").get("cmdstat_exists", {}).get("calls", 0))


def asleep(server: Any, before: int) -> bool:
    """Whether all sleep: each looks before it is in the line, and once more before it sleeps."""
    return looks(server) >= before + 2 * SLEEPERS


def test_all_threads_check_their_queues_after_their_subscription_was_cut(url: str, server: Any) -> None:
    with Tickwheel(url, namespace="again") as tickwheel, ThreadPoolExecutor(SLEEPERS) as threads:
        work = tickwheel.create_queue("work")
        waiting = sleeping_threads(tickwheel, threads, server)
        work.enqueue_many([NewMessage()] * SLEEPERS)
        assert not any(each.done() for each in waiting)
        server.client_kill_filter(_type="pubsub")
        assert [len(each.result(SOON_S)) for each in waiting] == [1] * SLEEPERS


def test_all_threads_report_that_their_right_to_subscribe_was_withdrawn(url: str, server: Any) -> None:
    with Tickwheel(url, namespace="again") as tickwheel, ThreadPoolExecutor(SLEEPERS) as threads:
        tickwheel.create_queue("work")
        waiting = sleeping_threads(tickwheel, threads, server)
        # The server closes the connections that listen to what they may not.
        server.execute_command("ACL", "SETUSER", "worker", "resetchannels")
        assert [type(each.exception(SOON_S)) for each in waiting] == [Forbidden] * SLEEPERS


def sleeping_threads(tickwheel: Tickwheel, threads: ThreadPoolExecutor, server: Any) -> list[Future[list[Message]]]:
    before = looks(server)
    waiting = [threads.submit(tickwheel.queue("work").dequeue, wait=LONG) for _ in range(SLEEPERS)]
    eventually(lambda: asleep(server, before), "all sleep")
    return waiting


def test_all_tasks_check_their_queues_after_their_subscription_was_cut(url: str, server: Any) -> None:
    async def sleep_through_a_cut() -> list[int]:
        async with aio.Tickwheel(url, namespace="again") as tickwheel:
            work = await tickwheel.create_queue("work")
            waiting = await sleeping_tasks(work, server)
            await work.enqueue_many([NewMessage()] * SLEEPERS)
            assert not any(each.done() for each in waiting)
            server.client_kill_filter(_type="pubsub")
            async with asyncio.timeout(SOON_S):
                return [len(messages) for messages in await asyncio.gather(*waiting)]

    assert asyncio.run(sleep_through_a_cut()) == [1] * SLEEPERS


def test_all_tasks_report_that_their_right_to_subscribe_was_withdrawn(url: str, server: Any) -> None:
    async def sleep_until_refused() -> list[Any]:
        async with aio.Tickwheel(url, namespace="again") as tickwheel:
            waiting = await sleeping_tasks(await tickwheel.create_queue("work"), server)
            server.execute_command("ACL", "SETUSER", "worker", "resetchannels")
            async with asyncio.timeout(SOON_S):
                return await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(told) for told in asyncio.run(sleep_until_refused())] == [Forbidden] * SLEEPERS


async def sleeping_tasks(work: aio.Queue, server: Any) -> list[asyncio.Task[list[aio.Message]]]:
    before = looks(server)
    waiting = [asyncio.create_task(work.dequeue(wait=LONG)) for _ in range(SLEEPERS)]
    await eventually_in_task(lambda: asleep(server, before), "all have looked, and sleep", SOON_S)
    return waiting
