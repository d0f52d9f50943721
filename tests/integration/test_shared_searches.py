"""Waiting dequeues with the same filter share their searches: a message that none of them wants costs one search, and
many calls that begin at the same time cost few searches. Callers with different filters search in turn.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.integration.service_thread import ServiceThread
from tests.security.tokens import entry, write_token_file
from tests.support.wait_until import eventually
from tickwheel import NewMessage, Tickwheel, aio
from tickwheel.redis.wait_list import SWEEP_S, WaitList
from tickwheel.service.token_file import TokenFile
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

WAITERS = 300
# The number of messages for each pair of the filter. A search reads those of one pair.
CANDIDATES = 2_000
# The maximum number of searches of calls that begin at about the same time. Usually there are four: before and after
# the client subscribes to the queue, calls that begin during the first search share the second one. A call that begins
# even later, because the machine is busy, needs a search of its own until the client is subscribed.
AT_ONCE = 20
# The number of sweeps for which the waiting dequeues are observed.
SWEEPS = 5
WAIT = timedelta(seconds=60)
WANTED = {"of": "1", "for": "workers"}
FIRST, SECOND = "tw_a-Of-Shared-Searches", "tw_b-Of-Shared-Searches"


class Searches:
    """The number of searches of a server, by its own statistics."""

    def __init__(self, server: PrivateServer) -> None:
        self._server: Any = server.client()

    def count(self) -> int:
        """Return the number of searches: each counts the index entries of both pairs once, and nothing else does."""
        return int(self._server.info("commandstats").get("cmdstat_zlexcount", {"calls": 0})["calls"]) // 2

    def announcements(self) -> int:
        """Return the number of announcements of ready messages."""
        return int(self._server.info("commandstats").get("cmdstat_spublish", {"calls": 0})["calls"])

    def after(self, seconds: float) -> int:
        """Return the number of searches after these seconds of the server's clock."""
        end = self._now() + seconds
        eventually(lambda: self._now() >= end, "the time has passed")
        return self.count()

    def _now(self) -> float:
        seconds, microseconds = self._server.time()
        return float(seconds + microseconds / 1_000_000)

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


@pytest.fixture
def two_tokens(name: str, tmp_path: Path) -> TokenFile:
    here = f'namespaces = ["{name}"]'
    return write_token_file(tmp_path, *(entry(token, '["consume"]', here) for token in (FIRST, SECOND)))


@contextmanager
def producer(server: PrivateServer, name: str) -> Iterator[Any]:
    """Yield a queue with candidates: messages that have one pair of the filter each."""
    with Tickwheel(server.url, namespace=name, drive=False) as tickwheel:
        queue = tickwheel.create_queue("q")
        for key in WANTED:
            queue.enqueue_many(NewMessage(metadata={**WANTED, key: "no"}) for _ in range(CANDIDATES))
        yield queue


def check_searches(queue: Any, searches: Searches, before: int, answers: Any, waiting: Any) -> None:
    """Let all dequeues begin. Enqueue messages that nobody wants, then one that all want, then one for each of the
    others. ``before`` is the number of searches before the dequeues began.
    """
    eventually(lambda: waiting() == WAITERS, "all dequeues wait")
    assert searches.settled() - before <= AT_ONCE
    before = searches.settled()
    # The sweep searches only if wake-ups may be lost.
    assert searches.after(SWEEPS * SWEEP_S) - before == 0
    queue.enqueue(metadata={"of": "1"})
    assert searches.after(SWEEPS * SWEEP_S) - before <= 2
    before, announced = searches.settled(), searches.announcements()
    queue.enqueue_many(NewMessage(metadata={"of": "1"}) for _ in range(WAITERS))
    after = searches.settled()
    # The messages become ready in a few steps. Each step is announced, and needs a search if it follows the last one.
    steps = searches.announcements() - announced
    assert steps < WAITERS / 10
    assert after - before <= steps + 1
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
        before = searches.settled()
        calls = [threads.submit(lambda: client.queue("q").dequeue(where=WANTED, wait=WAIT)) for _ in range(WAITERS)]

        def answers() -> list[Any]:
            return [message for call in calls if call.done() for message in call.result()]

        waiters: WaitList = client._io.wakeups._waiters
        check_searches(queue, searches, before, answers, waiters.count)


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


def waiting_calls(service: ServiceThread, name: str) -> int:
    """Return the number of calls that wait in the namespace."""
    return sum(of.wakeups.waiter_count for of in service.server.namespaces if of.context.namespace == name)


def test_calls_of_several_tokens_share_searches_in_the_service(
    tickwheel_server: PrivateServer, name: str, searches: Searches, two_tokens: TokenFile
) -> None:
    with producer(tickwheel_server, name) as queue, ServiceThread(tickwheel_server.url, tokens=two_tokens) as service:
        urls = [service.url.replace("//", f"//:{token}@") for token in (FIRST, SECOND, FIRST)]

        async def run() -> None:
            before = searches.settled()
            async with waiting_tasks(urls, name) as tasks:

                def answers() -> list[Any]:
                    return [message for task in tasks if task.done() for message in task.result()]

                waiting = partial(waiting_calls, service, name)
                await asyncio.to_thread(check_searches, queue, searches, before, answers, waiting)

        asyncio.run(run())


def test_a_message_reaches_the_waiter_of_a_token_after_one_search_of_the_other_token(
    tickwheel_server: PrivateServer, name: str, searches: Searches, two_tokens: TokenFile
) -> None:
    with producer(tickwheel_server, name) as queue, ServiceThread(tickwheel_server.url, tokens=two_tokens) as service:
        first, second = (service.url.replace("//", f"//:{token}@") for token in (FIRST, SECOND))
        waiting = partial(waiting_calls, service, name)

        async def run() -> None:
            async with (
                aio.Tickwheel(first, namespace=name, existing=True, drive=False) as other,
                aio.Tickwheel(second, namespace=name, existing=True, drive=False) as own,
            ):
                foreign = [{"of": "1", "for": str(n)} for n in range(WAITERS)]
                others = [asyncio.create_task(other.queue("q").dequeue(where=where, wait=WAIT)) for where in foreign]
                await asyncio.to_thread(eventually, lambda: waiting() == WAITERS, "the calls of the first token wait")
                call = asyncio.create_task(own.queue("q").dequeue(where=WANTED, wait=WAIT))
                await asyncio.to_thread(eventually, lambda: waiting() == WAITERS + 1, "all calls wait")
                await asyncio.to_thread(searches.settled)
                wakeups = next(of.wakeups for of in service.server.namespaces if of.context.namespace == name)
                before = wakeups.wakeup_count
                await asyncio.to_thread(queue.enqueue, metadata=WANTED)
                assert len(await call) == 1
                # A sweep may add a wake-up each second.
                assert wakeups.wakeup_count - before < WAITERS / 10
                await asyncio.to_thread(queue.enqueue_many, [NewMessage(metadata=where) for where in foreign])
                assert all([await task for task in others])

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


def test_a_dequeue_that_begins_after_an_empty_search_searches_only_at_the_end_of_its_wait(
    tickwheel_server: PrivateServer, name: str, searches: Searches
) -> None:
    with (
        producer(tickwheel_server, name) as queue,
        Tickwheel(tickwheel_server.url, namespace=name, existing=True, drive=False) as client,
    ):
        soon = timedelta(milliseconds=1)
        assert client.queue("q").dequeue(where=WANTED, wait=soon) == []
        before = searches.settled()
        assert [client.queue("q").dequeue(where=WANTED, wait=soon) for _ in range(10)] == [[]] * 10
        assert searches.settled() - before == 10
        # A dequeue that does not wait searches itself.
        assert client.queue("q").dequeue(where=WANTED) == []
        assert searches.settled() - before == 11
        queue.enqueue(id="wanted", metadata=WANTED)
        assert [message.id for message in client.queue("q").dequeue(where=WANTED, wait=soon)] == ["wanted"]


def test_each_dequeue_gets_its_message_while_dequeues_begin_and_messages_become_ready(
    tickwheel_server: PrivateServer, name: str
) -> None:
    with (
        producer(tickwheel_server, name) as queue,
        Tickwheel(tickwheel_server.url, namespace=name, existing=True, drive=False) as client,
        ThreadPoolExecutor(WAITERS) as threads,
    ):
        calls = []
        for n in range(WAITERS):
            calls.append(threads.submit(client.queue("q").dequeue, where=WANTED, wait=WAIT))
            queue.enqueue(id=str(n), metadata=WANTED)
        assert {message.id for call in calls for message in call.result(60)} == {str(n) for n in range(WAITERS)}


def test_cancelled_dequeues_keep_no_other_dequeue_from_its_message(tickwheel_server: PrivateServer, name: str) -> None:
    async def run(queue: Any) -> None:
        async with aio.Tickwheel(tickwheel_server.url, namespace=name, existing=True, drive=False) as client:
            tasks: list[asyncio.Task[Any]] = []
            for n in range(60):
                tasks.append(asyncio.create_task(client.queue("q").dequeue(where=WANTED, wait=WAIT)))
                # The first task searches, and the others wait for their turn.
                for _ in range(n % 20):
                    await asyncio.sleep(0)
                if n % 3 == 0:
                    tasks[n].cancel()
            left = [task for n, task in enumerate(tasks) if n % 3]
            # One message for each call, because a cancelled call may have leased a message.
            await asyncio.to_thread(queue.enqueue_many, [NewMessage(metadata=WANTED) for _ in tasks])
            answers = await asyncio.wait_for(asyncio.gather(*left), 60)
            assert len({message.id for [message] in answers}) == len(left)

    with producer(tickwheel_server, name) as queue:
        asyncio.run(run(queue))
