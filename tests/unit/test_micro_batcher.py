"""Concurrent calls are executed in batches, and each call receives its own result."""

import asyncio
import gc
import weakref
from collections.abc import Sequence
from itertools import chain

import pytest

from tickwheel.service.batching.micro_batcher import MicroBatcher

pytestmark = pytest.mark.unit


class Work:
    """Doubles up to ten numbers per batch, while `permitted` is set."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.permitted = asyncio.Event()
        self.permitted.set()
        self.batcher: MicroBatcher[int, int] = MicroBatcher(self._double, lambda waiting: min(len(waiting), 10))

    async def _double(self, group: list[int]) -> Sequence[int]:
        self.groups.append(group)
        await self.permitted.wait()
        if 13 in group:
            raise ValueError("13")
        return [2 * number for number in group]

    async def start_calls(self) -> tuple["asyncio.Task[int]", list["asyncio.Task[int]"]]:
        """Start one call that blocks, and five calls that wait for it."""
        self.permitted.clear()
        first = asyncio.create_task(self.batcher.submit(0))
        while not self.groups:
            await asyncio.sleep(0)
        others = [asyncio.create_task(self.batcher.submit(number)) for number in range(1, 6)]
        await asyncio.sleep(0)
        return first, others


def test_sequential_calls_are_executed_separately() -> None:
    async def one_by_one() -> tuple[list[int], list[list[int]]]:
        work = Work()
        return [await work.batcher.submit(number) for number in range(5)], work.groups

    assert asyncio.run(one_by_one()) == ([0, 2, 4, 6, 8], [[0], [1], [2], [3], [4]])


def test_calls_made_while_a_call_is_in_progress_form_a_batch() -> None:
    async def submit_concurrently() -> tuple[list[int], list[list[int]]]:
        work = Work()
        first, others = await work.start_calls()
        work.permitted.set()
        return await asyncio.gather(first, *others), work.groups

    assert asyncio.run(submit_concurrently()) == ([0, 2, 4, 6, 8, 10], [[0], [1, 2, 3, 4, 5]])


def test_the_callers_take_turns() -> None:
    async def submit() -> list[list[int]]:
        work = Work()
        first, others = await work.start_calls()
        for number in range(6, 20):
            others.append(asyncio.create_task(work.batcher.submit(number, "many")))
        others.append(asyncio.create_task(work.batcher.submit(20, "one")))
        await asyncio.sleep(0)
        work.permitted.set()
        await asyncio.gather(first, *others, return_exceptions=True)
        return work.groups

    assert asyncio.run(submit())[:2] == [[0], [1, 6, 20, 2, 7, 3, 8, 4, 9, 5]]


def test_no_batch_is_larger_than_its_limit() -> None:
    async def many() -> list[list[int]]:
        work = Work()
        first, others = await work.start_calls()
        others += [asyncio.create_task(work.batcher.submit(number)) for number in range(20, 49)]
        await asyncio.sleep(0)
        work.permitted.set()
        await asyncio.gather(first, *others)
        return work.groups

    groups = asyncio.run(many())
    assert list(chain(*groups)) == [*range(6), *range(20, 49)]
    assert max(map(len, groups)) == 10


def test_a_cancelled_call_is_not_executed() -> None:
    async def one_gives_up() -> list[list[int]]:
        work = Work()
        first, others = await work.start_calls()
        others[2].cancel()
        work.permitted.set()
        await asyncio.gather(first, *others, return_exceptions=True)
        return work.groups

    assert asyncio.run(one_gives_up()) == [[0], [1, 2, 4, 5]]


def test_the_item_of_a_cancelled_call_is_not_kept_while_another_batch_hangs() -> None:
    class Item:
        """An object to which weak references are possible."""

    async def one_gives_up() -> None:
        permitted = asyncio.Event()

        async def send(group: list[Item]) -> Sequence[None]:
            await permitted.wait()
            return [None] * len(group)

        batcher: MicroBatcher[Item, None] = MicroBatcher(send, len)
        hanging = asyncio.create_task(batcher.submit(Item()))
        await asyncio.sleep(0)
        item = Item()
        kept = weakref.ref(item)
        waiting = asyncio.create_task(batcher.submit(item))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait((waiting,))
        del item, waiting
        gc.collect()
        assert kept() is None
        permitted.set()
        await hanging

    asyncio.run(one_gives_up())


def test_cancelling_a_caller_during_its_batch_does_not_affect_other_callers() -> None:
    async def one_gives_up() -> list[int | BaseException]:
        work = Work()
        first, others = await work.start_calls()
        first.cancel()
        work.permitted.set()
        return await asyncio.gather(*others, return_exceptions=True)

    assert asyncio.run(one_gives_up()) == [2, 4, 6, 8, 10]


def test_an_error_reaches_all_callers_of_its_batch_and_the_next_batch_is_executed() -> None:
    async def fails() -> tuple[Sequence[int | BaseException], int]:
        work = Work()
        first, _ = await work.start_calls()
        failing = [asyncio.create_task(work.batcher.submit(number)) for number in (13, 14)]
        await asyncio.sleep(0)
        work.permitted.set()
        await first
        return await asyncio.gather(*failing, return_exceptions=True), await work.batcher.submit(15)

    failed, after = asyncio.run(fails())
    assert [type(error) for error in failed] == [ValueError, ValueError]
    assert after == 30
