"""Waiting dequeues are woken and do not poll: the cost for the server, the choice of the waiter, lost wake-ups."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.fault.event_processes import EventProcessChild, fence, wait_for_a_claim
from tests.fault.faulty_server import FaultyServer
from tests.property.mutants import Mutant, load_mutant
from tests.support.command_stats import calls_of
from tests.support.wait_until import eventually, eventually_in_task
from tickwheel import Message, NewMessage, Queue, Tickwheel, aio
from tickwheel.redis.wait_list import SWEEP_S, WaitList

pytestmark = pytest.mark.fault

WAITERS = 200
LONG = timedelta(seconds=60)
Waiting = list[Future[list[Message]]]


@pytest.fixture
def tickwheel(faulty: FaultyServer) -> Iterator[Tickwheel]:
    """A client of a server that has no other clients."""
    with Tickwheel(faulty.url, namespace="waiting") as tickwheel:
        yield tickwheel


@pytest.fixture
def server(faulty: FaultyServer) -> Iterator[Any]:
    with faulty.client() as client:
        yield client


def count_checks(server: Any) -> int:
    """Return how often clients checked whether a message is ready, by the dequeue script or without it."""
    return calls_of(server, "exists")


@contextmanager
def run_waiters(queue: Queue, server: Any, wheres: list[dict[str, str]]) -> Iterator[Waiting]:
    """Run a waiting dequeue for each filter. At the end, enqueue a message for each dequeue that still waits."""
    before = count_checks(server)
    waiters: WaitList = queue._tickwheel._io.wakeups._waiters
    counts = [before]

    def all_wait() -> bool:
        # A dequeue without a filter checks before it joins the wait list, and once more before it waits. Those with
        # the same filter share their checks, so they wait when no more checks are made.
        counts.append(count_checks(server))
        is_settled = {} in wheres or len(set(counts[-5:])) == 1
        return is_settled and waiters.count() == len(wheres) and counts[-1] >= before + 2 * wheres.count({})

    with ThreadPoolExecutor(len(wheres)) as threads:
        waiting = [threads.submit(queue.dequeue, where=where or None, wait=LONG) for where in wheres]
        try:
            eventually(all_wait, "all dequeues wait")
            yield waiting
        finally:
            unserved = [where for where, future in zip(wheres, waiting, strict=True) if not future.done()]
            queue.enqueue_many(NewMessage(metadata=where) for where in unserved)


def count_done(waiting: Waiting) -> int:
    return sum(future.done() for future in waiting)


def test_two_hundred_waiting_threads_cost_the_server_one_check_a_second(tickwheel: Tickwheel, server: Any) -> None:
    with run_waiters(tickwheel.create_queue("work"), server, [{}] * WAITERS):
        first, since = count_checks(server), time.monotonic()
        eventually(lambda: count_checks(server) >= first + 2, "the backstop checks the queue")
        assert count_checks(server) - first <= (time.monotonic() - since) / SWEEP_S + 2


def test_two_hundred_waiting_tasks_cost_the_server_one_check_a_second(faulty: FaultyServer, server: Any) -> None:
    async def wait_and_be_woken() -> float:
        async with aio.Tickwheel(faulty.url, namespace="waiting") as tickwheel:
            queue = await tickwheel.create_queue("work")
            before = count_checks(server)
            waiting = [asyncio.create_task(queue.dequeue(wait=LONG)) for _ in range(WAITERS)]
            await eventually_in_task(
                lambda: count_checks(server) >= before + 2 * WAITERS, "all tasks have checked twice", 60
            )
            first, since = count_checks(server), time.monotonic()
            await eventually_in_task(lambda: count_checks(server) >= first + 2, "the backstop checks the queue")
            rate = (count_checks(server) - first - 2) / (time.monotonic() - since)
            await queue.enqueue_many([NewMessage()] * WAITERS)
            assert all(await asyncio.gather(*waiting))
            return rate

    assert asyncio.run(asyncio.wait_for(wait_and_be_woken(), 60)) <= 1 / SWEEP_S


def test_as_many_waiters_are_woken_as_messages_became_ready(tickwheel: Tickwheel, server: Any) -> None:
    work = tickwheel.create_queue("work")
    with run_waiters(work, server, [{}] * WAITERS) as waiting:
        first, since = count_checks(server), time.monotonic()
        work.enqueue_many([NewMessage()] * 20)
        eventually(lambda: count_done(waiting) == 20, "twenty waiters have their message")
        woken, sweeps = count_checks(server) - first, (time.monotonic() - since) / SWEEP_S + 1
        assert woken <= 1 + 20 * 3 + sweeps
        assert sum(len(future.result()) for future in waiting if future.done()) == 20


def test_a_message_of_a_free_exclusive_value_wakes_an_unfiltered_dequeue(tickwheel: Tickwheel, server: Any) -> None:
    work = tickwheel.create_queue("exclusive", exclusive_key="of")
    with run_waiters(work, server, [{}] * 3) as waiting:
        # Of two messages of one value, only the first is ready. The second is ready when the first is completed.
        work.enqueue_many(NewMessage(id=id, metadata={"of": "a"}) for id in ("first", "second"))
        eventually(lambda: count_done(waiting) == 1, "one waiter is woken")
        [first] = [message for future in waiting if future.done() for message in future.result()]
        assert first.id == "first"
        first.complete()
        eventually(lambda: count_done(waiting) == 2, "another waiter is woken when the value is free again")
        received = [message.id for future in waiting if future.done() for message in future.result()]
        assert sorted(received) == ["first", "second"]
        # The last waiter needs a message with a value, which `run_waiters` does not enqueue.
        work.enqueue(metadata={"of": "b"})
        eventually(lambda: count_done(waiting) == 3, "the last waiter is woken")


def test_a_waiter_that_finds_nothing_passes_the_wake_up_on(tickwheel: Tickwheel, server: Any) -> None:
    work = tickwheel.create_queue("work")
    wheres = [{"colour": "blue"}] * 50
    wheres.insert(25, {"colour": "red"})
    with run_waiters(work, server, wheres) as waiting:
        first = count_checks(server)
        work.enqueue(b"", id="red", metadata={"colour": "red"})
        eventually(waiting[25].done, "the waiter with the matching filter has the message")
        assert [message.id for message in waiting[25].result()] == ["red"]
        assert count_done(waiting) == 1
        # Each of the other waiters checked at most once, and the backstop checked a few times.
        assert count_checks(server) - first <= 2 * len(wheres)


@pytest.fixture
def no_backstop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the backstop: only a wake-up makes a waiter check the queue."""
    monkeypatch.setattr(WaitList, "begin_sweep", lambda _: None)


@pytest.mark.usefixtures("no_backstop")
def test_a_waiter_is_woken_when_an_exclusive_value_is_free_again(tickwheel: Tickwheel, server: Any) -> None:
    work = tickwheel.create_queue("work", exclusive_key="of")
    work.enqueue(b"", id="first", metadata={"of": "1"})
    work.enqueue(b"", id="second", metadata={"of": "1"})
    [message] = work.dequeue()
    with run_waiters(work, server, [{"of": "1"}]) as [waiting]:
        message.complete()
        assert [message.id for message in waiting.result(20)] == ["second"]


@pytest.mark.usefixtures("no_backstop")
def test_a_waiter_is_woken_by_the_message_behind_the_head_of_its_value(tickwheel: Tickwheel, server: Any) -> None:
    work = tickwheel.create_queue("work", exclusive_key="of")
    with run_waiters(work, server, [{"of": "1", "region": "eu"}]) as [waiting]:
        first = count_checks(server)
        work.enqueue(b"", id="head", metadata={"of": "1"})
        eventually(lambda: count_checks(server) > first, "the waiter has checked and found no matching message")
        work.enqueue(b"", id="behind", metadata={"of": "1", "region": "eu"})
        assert [message.id for message in waiting.result(20)] == ["behind"]


@pytest.mark.usefixtures("no_backstop")
@pytest.mark.parametrize("exclusive_key", [None, "of"])
def test_a_waiter_is_woken_when_a_lease_ends(
    tickwheel: Tickwheel, server: Any, faulty: FaultyServer, tmp_path: Path, exclusive_key: str | None
) -> None:
    work = tickwheel.create_queue("work", exclusive_key=exclusive_key, lease=timedelta(seconds=1))
    work.enqueue(b"", id="m", metadata={"of": "1"})
    with EventProcessChild(faulty.url, "waiting", tmp_path / "lock"):
        assert len(work.dequeue()) == 1
        with run_waiters(work, server, [{}]) as [waiting]:
            assert [message.attempt for message in waiting.result(20)] == [2]


@pytest.mark.usefixtures("no_backstop")
def test_a_waiter_is_woken_at_the_due_time(
    tickwheel: Tickwheel, server: Any, faulty: FaultyServer, tmp_path: Path
) -> None:
    work = tickwheel.create_queue("work")
    with EventProcessChild(faulty.url, "waiting", tmp_path / "lock"), run_waiters(work, server, [{}]) as [waiting]:
        work.enqueue(b"", delay=timedelta(milliseconds=200))
        [message] = waiting.result(20)
        assert message.lease_until - timedelta(seconds=30) >= message.due


def test_the_backstop_makes_up_for_a_lost_wake_up(tickwheel: Tickwheel, server: Any, tmp_path: Path) -> None:
    work = tickwheel.create_queue("work")
    mutant = Mutant("no wake-up is sent", "_transition", "call('SPUBLISH', wake, new_ready_count)", "")
    with load_mutant(mutant, tmp_path), run_waiters(work, server, [{}] * 3) as waiting:
        for n in range(3):
            since = time.monotonic()
            work.enqueue(b"")
            eventually(lambda: count_done(waiting) > n, "the backstop found the message")  # noqa: B023
            assert time.monotonic() - since < 5 * SWEEP_S


def test_wake_ups_continue_after_their_connection_was_lost(tickwheel: Tickwheel, server: Any) -> None:
    work = tickwheel.create_queue("work")
    with run_waiters(work, server, [{}] * 10) as waiting:
        for n in range(10):
            server.client_kill_filter(_type="pubsub")
            work.enqueue(b"")
            eventually(lambda: count_done(waiting) > n, "a waiter has the message")  # noqa: B023


def test_waiters_and_event_process_continue_after_the_server_restarts(
    tickwheel: Tickwheel, faulty: FaultyServer, tmp_path: Path
) -> None:
    work = tickwheel.create_queue("work")
    with EventProcessChild(faulty.url, "waiting", tmp_path / "lock") as event_process:
        with faulty.client() as server:
            wait_for_a_claim(server, "waiting", None)
            with run_waiters(work, server, [{}] * 4) as waiting:
                before = fence(server, "waiting")
                work.enqueue(b"", id="delayed before", delay=timedelta(seconds=1))
                faulty.kill()
                faulty.start()
                wait_for_a_claim(server, "waiting", before)
                work.enqueue(b"", id="at once")
                work.enqueue(b"", id="delayed after", delay=timedelta(milliseconds=300))
                eventually(lambda: count_done(waiting) == 3, "three waiters have their message")
                woken = {message.id for future in waiting if future.done() for message in future.result()}
        assert woken == {"delayed before", "at once", "delayed after"}
        assert event_process.stop() == 0
