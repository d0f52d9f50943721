"""Messages of concurrent calls of the service share calls of the script, and each caller gets its own answer."""

import asyncio
from typing import Any

import pytest

from tickwheel import IdConflict, NewMessage, PayloadTooLarge, aio
from tickwheel.limits import CALL_BYTES
from tickwheel.service.counters import GROUP_SIZE_BUCKETS
from tickwheel.service.enqueue_batcher import EnqueueBatcher
from tickwheel.telemetry.histogram import Histogram

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
    assert plans <= 2


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
