"""Messages of concurrent calls of the service share calls of the script, and each caller gets its own answer."""

import asyncio
from typing import Any

import pytest

from tickwheel import IdConflict, NewMessage, OutboxFull, PayloadTooLarge, QueueBlocked, aio
from tickwheel.limits import CALL_BYTES
from tickwheel.service.batching import enqueue_batcher
from tickwheel.service.batching.enqueue_batcher import EnqueueBatcher
from tickwheel.service.counters import GROUP_SIZE_BUCKETS
from tickwheel.storage.keys import shard_key
from tickwheel.storage.sharding import shard_of
from tickwheel.telemetry.histogram import Histogram
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration


class Counted:
    """Executes plans, and counts them."""

    def __init__(self, tickwheel: aio.Tickwheel) -> None:
        self._tickwheel = tickwheel
        self.plans = 0

    async def run(self, plan: Any) -> Any:
        self.plans += 1
        return await self._tickwheel._run(plan)


async def enqueue_all(tickwheel: aio.Tickwheel, messages: list[NewMessage]) -> tuple[list[Any], int]:
    async with tickwheel:
        await tickwheel.create_queue("q")
        counted = Counted(tickwheel)
        enqueuing = EnqueueBatcher(tickwheel._context, counted.run, Histogram(GROUP_SIZE_BUCKETS), lambda queue: False)
        calls = (enqueuing.enqueue("q", message) for message in messages)
        return await asyncio.gather(*calls, return_exceptions=True), counted.plans


def test_calls_made_while_a_call_is_in_progress_share_the_next_call(
    tickwheel_aio: aio.Tickwheel,
) -> None:
    results, plans = asyncio.run(enqueue_all(tickwheel_aio, [NewMessage(b"%d" % n, id=f"m{n}") for n in range(100)]))
    assert [result.id for result in results] == [f"m{n}" for n in range(100)]
    assert all(result.created for result in results)
    assert plans <= 2 * tickwheel_aio._context.shards


def test_a_refused_message_refuses_no_other_message_of_its_call(tickwheel_aio: aio.Tickwheel) -> None:
    messages = [NewMessage(b"a", id="m"), NewMessage(b"b", id="m"), NewMessage(bytes(10**6)), NewMessage(b"c", id="n")]
    results, _ = asyncio.run(enqueue_all(tickwheel_aio, messages))
    assert [type(result) for result in results[1:3]] == [IdConflict, PayloadTooLarge]
    assert [results[0].created, results[3].created] == [True, True]


def test_the_size_of_a_shared_call_is_limited(tickwheel_aio: aio.Tickwheel) -> None:
    size = 1_000
    count = 3 * CALL_BYTES // size
    results, plans = asyncio.run(enqueue_all(tickwheel_aio, [NewMessage(bytes(size)) for _ in range(count)]))
    assert all(result.created for result in results)
    assert plans >= 3


def test_a_cancelled_caller_takes_no_other_callers_answer(tickwheel_aio: aio.Tickwheel) -> None:
    async def cancel_one() -> tuple[list[Any], dict[str, int]]:
        async with tickwheel_aio as tickwheel:
            queue = await tickwheel.create_queue("q")
            enqueuing = EnqueueBatcher(
                tickwheel._context, tickwheel._run, Histogram(GROUP_SIZE_BUCKETS), lambda queue: False
            )
            calls = [asyncio.create_task(enqueuing.enqueue("q", NewMessage(id=f"m{n}"))) for n in range(20)]
            # One call sends the first messages, so the following messages wait for the next call.
            await calls[0]
            more = [asyncio.create_task(enqueuing.enqueue("q", NewMessage(id=f"n{n}"))) for n in range(20)]
            await asyncio.sleep(0)
            more[3].cancel()
            return await asyncio.gather(*more, return_exceptions=True), await queue.counts()

    results, counts = asyncio.run(cancel_one())
    assert [n for n, result in enumerate(results) if isinstance(result, asyncio.CancelledError)] == [3]
    assert all(result.created for n, result in enumerate(results) if n != 3)
    assert counts["pending"] >= 39


def test_concurrent_calls_create_a_queue_once(tickwheel_aio: aio.Tickwheel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enqueue_batcher, "creation_limit", lambda: None)

    async def enqueue_to_new_queue() -> tuple[list[Any], int]:
        async with tickwheel_aio as tickwheel:
            creations = Counted(tickwheel)
            enqueuing = EnqueueBatcher(
                *(tickwheel._context, tickwheel._run, Histogram(GROUP_SIZE_BUCKETS), lambda _: False),
                run_in_turns=creations.run,
            )
            calls = (enqueuing.enqueue("new", NewMessage(id=f"m{n}")) for n in range(20))
            return await asyncio.gather(*calls), creations.plans

    results, creations = asyncio.run(enqueue_to_new_queue())
    assert all(result.created for result in results)
    assert creations == 1


async def gather_behind_a_call(tickwheel: aio.Tickwheel, messages: list[NewMessage]) -> list[Any]:
    """Enqueue messages while a call is in progress, so that the next calls carry several of them."""
    enqueuing = EnqueueBatcher(tickwheel._context, tickwheel._run, Histogram(GROUP_SIZE_BUCKETS), lambda _: False)
    for batch in (messages, messages):
        # The first time, each shard gets a call of its own. From then on, calls wait for the next group.
        results = await asyncio.gather(*(enqueuing.enqueue("q", new) for new in batch), return_exceptions=True)
    return results


def ids_of_shards(count: int) -> dict[int, list[str]]:
    """Return ids for each of two shards."""
    ids: dict[int, list[str]] = {0: [], 1: []}
    for n in range(8 * count):
        ids[shard_of("q", f"m{n}".encode(), 2)].append(f"m{n}")
    return {shard: some[:count] for shard, some in ids.items()}


def test_a_shard_that_refuses_messages_refuses_none_of_another_shard(
    tickwheel_server: PrivateServer, namespace: str, server: Any
) -> None:
    async def enqueue_to_both() -> list[Any]:
        async with aio.Tickwheel(
            tickwheel_server.url, namespace=namespace, shards=2, history="relay", outbox_limit=2**20
        ) as tickwheel:
            await tickwheel.create_queue("q")
            server.hset(shard_key(namespace, 1, "clock"), "outbox", 2**21)
            return await gather_behind_a_call(tickwheel, [NewMessage(id=id) for id in by_shard[0] + by_shard[1]])

    by_shard = ids_of_shards(5)
    results = asyncio.run(enqueue_to_both())
    assert [result.id for result in results[:5]] == by_shard[0]
    assert [type(result) for result in results[5:]] == [OutboxFull] * 5


def test_an_existing_message_gets_its_answer_though_a_new_one_is_refused(
    tickwheel_server: PrivateServer, namespace: str
) -> None:
    async def enqueue_old_and_new() -> list[Any]:
        async with aio.Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel:
            queue = await tickwheel.create_queue("q")
            await queue.enqueue(id="old")
            await queue.block(dequeue=False)
            return await gather_behind_a_call(tickwheel, [NewMessage(id=id) for id in ("a", "old", "b", "old")])

    results = asyncio.run(enqueue_old_and_new())
    assert [getattr(result, "created", type(result)) for result in results] == [
        QueueBlocked,
        False,
        QueueBlocked,
        False,
    ]
