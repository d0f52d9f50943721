"""Waiting dequeues with the same filter share their searches: a message that none of them wants costs one search."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.integration.service_thread import ServiceThread
from tests.security.tokens import entry, write_token_file
from tests.support.wait_until import eventually
from tickwheel import NewMessage, Tickwheel, aio
from tickwheel.redis.wait_list import WaitList
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

WAITERS = 60
WAIT = timedelta(seconds=60)
WANTED = {"of": "1", "for": "workers"}
FIRST, SECOND = "tw_a-Of-Shared-Searches", "tw_b-Of-Shared-Searches"


@pytest.fixture(autouse=True)
def no_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the sweep, each search has its reason in a message, and no sweep replaces a lost wake-up."""
    monkeypatch.setattr(WaitList, "sweep", lambda _: None)


class Searches:
    """The number of searches of a server, by its own statistics."""

    def __init__(self, server: PrivateServer) -> None:
        self._server: Any = server.client()

    def count(self) -> int:
        """Return the number of searches: each counts the index entries of both pairs once, and nothing else does."""
        return int(self._server.info("commandstats").get("cmdstat_zlexcount", {"calls": 0})["calls"]) // 2

    def settled(self) -> int:
        """Return the number of searches once it does not change any more."""
        last = [-1, -2, -3, -4, -5]

        def is_stable() -> bool:
            last.append(self.count())
            return len(set(last[-5:])) == 1

        eventually(is_stable, "no dequeue searches")
        return last[-1]


@pytest.fixture
def searches(tickwheel_server: PrivateServer) -> Searches:
    return Searches(tickwheel_server)


@pytest.fixture
def name(tickwheel_server: PrivateServer) -> Iterator[str]:
    name = f"shared-searches-{uuid4().hex}"
    yield name
    tickwheel_server.clear(name)


@contextmanager
def producer(server: PrivateServer, name: str) -> Iterator[Any]:
    """Yield a queue with candidates: messages that have one pair of the filter each."""
    with Tickwheel(server.url, namespace=name, drive=False) as tickwheel:
        queue = tickwheel.create_queue("q")
        queue.enqueue_many(NewMessage(metadata={**WANTED, key: "no"}) for key in WANTED for _ in range(20))
        yield queue


def check_searches(queue: Any, searches: Searches, answers: Any, waiting: Any) -> None:
    """Enqueue messages that nobody wants, then one that all want, then one for each of the others."""
    eventually(lambda: waiting() == WAITERS, "all dequeues wait")
    before = searches.settled()
    queue.enqueue(metadata={"of": "1"})
    assert searches.settled() - before <= 2
    before = searches.settled()
    queue.enqueue_many(NewMessage(metadata={"of": "1"}) for _ in range(WAITERS))
    assert searches.settled() - before <= 2
    queue.enqueue(metadata=WANTED)
    eventually(lambda: len(answers()) == 1, "one message is delivered")
    queue.enqueue_many(NewMessage(metadata=WANTED) for _ in range(WAITERS - 1))
    eventually(lambda: len(answers()) == WAITERS, "each waiter gets its message")
    assert len({message.id for message in answers()}) == WAITERS


def test_threads_of_a_client_share_searches(tickwheel_server: PrivateServer, name: str, searches: Searches) -> None:
    with (
        producer(tickwheel_server, name) as queue,
        Tickwheel(tickwheel_server.url, namespace=name, existing=True, drive=False) as client,
        ThreadPoolExecutor(WAITERS) as threads,
    ):
        calls = [threads.submit(lambda: client.queue("q").dequeue(where=WANTED, wait=WAIT)) for _ in range(WAITERS)]

        def answers() -> list[Any]:
            return [message for call in calls if call.done() for message in call.result()]

        waiters: WaitList = client._io.wakeups._waiters
        check_searches(queue, searches, answers, waiters.count)


@asynccontextmanager
async def waiting_tasks(urls: list[str], name: str) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Let tasks of several clients wait."""
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(aio.Tickwheel(url, namespace=name, existing=True, drive=False))
            for url in urls
        ]
        tasks = [
            asyncio.create_task(clients[n % len(clients)].queue("q").dequeue(where=WANTED, wait=WAIT))
            for n in range(WAITERS)
        ]
        yield tasks
        await asyncio.gather(*tasks)


def test_calls_of_several_tokens_share_searches_in_the_service(
    tickwheel_server: PrivateServer, name: str, searches: Searches, tmp_path: Path
) -> None:
    here = f'namespaces = ["{name}"]'
    tokens = write_token_file(tmp_path, *(entry(token, '["consume"]', here) for token in (FIRST, SECOND)))
    with producer(tickwheel_server, name) as queue, ServiceThread(tickwheel_server.url, tokens=tokens) as service:
        urls = [service.url.replace("//", f"//:{token}@") for token in (FIRST, SECOND, FIRST)]

        async def run() -> None:
            async with waiting_tasks(urls, name) as tasks:

                def answers() -> list[Any]:
                    return [message for task in tasks if task.done() for message in task.result()]

                def waiting() -> int:
                    opened = service.server.namespaces
                    return sum(of.wakeups.waiter_count for of in opened if of.context.namespace == name)

                await asyncio.to_thread(check_searches, queue, searches, answers, waiting)

        asyncio.run(run())


def test_a_message_reaches_the_only_waiter_with_its_filter(
    tickwheel_server: PrivateServer, name: str, searches: Searches
) -> None:
    with (
        producer(tickwheel_server, name) as queue,
        Tickwheel(tickwheel_server.url, namespace=name, existing=True, drive=False) as client,
        ThreadPoolExecutor(WAITERS) as threads,
    ):
        filters = [{"kind": str(n % 20), "for": "workers"} for n in range(WAITERS)]
        calls = [threads.submit(client.queue("q").dequeue, where=where, wait=WAIT) for where in filters]
        waiters: WaitList = client._io.wakeups._waiters
        eventually(lambda: waiters.count() == WAITERS, "all dequeues wait")
        for n in range(WAITERS):
            queue.enqueue(id=str(n), metadata=filters[n])
        for where, call in zip(filters, calls, strict=True):
            [message] = call.result(60)
            assert message.metadata["kind"] == where["kind"]
