"""The turns of reads: few reads of a caller go on at a time, and those of other callers need not wait for them."""

import asyncio
import gc
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tickwheel import limits
from tickwheel.plan import Reply, Request
from tickwheel.service import dequeue_batch
from tickwheel.service.batching.coalescing_executor import CoalescingExecutor
from tickwheel.service.call_limits import CallLimits, RequestLimits
from tickwheel.service.fair_limit import FairLimit, SizedTurns
from tickwheel.v1.message_service_pb2 import DequeueBatchRequest

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def _turns_do_not_end_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TURN_S", 60.0)


class Reads:
    """Reads that go on until the test ends them, and what they read at a time."""

    def __init__(self, turns: SizedTurns) -> None:
        self._turns = turns
        self.begun: list[str] = []
        self.end = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, name: str, size: int = 1, caller: str = "a") -> asyncio.Task[None]:
        task = self._tasks[name] = asyncio.create_task(self._read(name, size, caller))
        return task

    async def _read(self, name: str, size: int, caller: str) -> None:
        async with self._turns.turn(caller, size):
            self.begun.append(name)
            await self.end.wait()

    async def settle(self) -> list[str]:
        """Let all tasks continue as far as they can. Return the reads that have begun."""
        for _ in range(10):
            await asyncio.sleep(0)
        return self.begun

    async def finish(self) -> list[str]:
        self.end.set()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        return self.begun


def test_a_caller_reads_at_most_as_much_as_the_limit_and_delays_no_other_caller() -> None:
    async def run() -> None:
        reads = Reads(SizedTurns(4))
        for n in range(5):
            reads.start(f"a{n}", 2)
        reads.start("b", 4, caller="b")
        assert await reads.settle() == ["a0", "a1", "b"]
        assert sorted(await reads.finish()) == ["a0", "a1", "a2", "a3", "a4", "b"]

    asyncio.run(run())


def test_a_read_above_the_limit_begins_when_its_caller_reads_nothing_else() -> None:
    async def run() -> None:
        reads = Reads(SizedTurns(4))
        first = reads.start("small")
        reads.start("huge", 100)
        # This one would have room, but may not overtake.
        reads.start("later")
        assert await reads.settle() == ["small"]
        first.cancel()
        assert await reads.settle() == ["small", "huge"]
        assert await reads.finish() == ["small", "huge", "later"]

    asyncio.run(run())


def test_a_free_turn_lets_no_other_call_run_first() -> None:
    async def run() -> list[str]:
        steps: list[str] = []
        asyncio.get_running_loop().call_soon(steps.append, "another call")
        async with SizedTurns(1).turn("a"):
            steps.append("the read")
        await asyncio.sleep(0)
        return steps

    assert asyncio.run(run()) == ["the read", "another call"]


def test_a_read_that_waits_for_a_shard_does_not_hold_up_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        reads = Reads(SizedTurns(1))
        monkeypatch.setattr(limits, "TURN_S", 0.0)
        for name in "xyz":
            reads.start(name)
        async with asyncio.timeout(20):
            while await reads.settle() != ["x", "y", "z"]:
                pass
        await reads.finish()
        # A turn that has ended early does not end again.
        monkeypatch.setattr(limits, "TURN_S", 60.0)
        reads.end.clear()
        for name in "uv":
            reads.start(name)
        assert await reads.settle() == ["x", "y", "z", "u"]
        await reads.finish()

    asyncio.run(run())


def test_no_more_calls_than_allowed_go_on_after_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        reads = Reads(SizedTurns(1, hanging_max=2))
        monkeypatch.setattr(limits, "TURN_S", 0.0)
        tasks = [reads.start(name) for name in "wxyz"]
        async with asyncio.timeout(20):
            while await reads.settle() != ["w", "x", "y"]:
                pass
            # Two calls go on without a turn, so the turn of the third one does not end early.
            for _ in range(100):
                await asyncio.sleep(0)
            assert reads.begun == ["w", "x", "y"]
            tasks[0].cancel()
            while await reads.settle() != ["w", "x", "y", "z"]:
                pass
        await reads.finish()
        assert all(line.hanging == 0 for line in reads._turns._lines.values())

    asyncio.run(run())


def test_a_busy_event_loop_ends_no_turn_early(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        reads = Reads(SizedTurns(1))
        monkeypatch.setattr(limits, "TURN_S", 0.004)
        for name in "xy":
            reads.start(name)
        await reads.settle()
        for _ in range(20):
            # The loop can do nothing else meanwhile.
            time.sleep(0.02)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert reads.begun == ["x"]
        async with asyncio.timeout(20):
            while await reads.settle() != ["x", "y"]:
                await asyncio.sleep(0.0005)
        await reads.finish()

    asyncio.run(run())


@pytest.mark.parametrize("steps", range(4))
@pytest.mark.parametrize("cancelled", [["first"], ["second"], ["third"], ["first", "second"], ["second", "first"]])
def test_a_cancelled_read_leaves_its_place_whenever_it_is_cancelled(cancelled: Sequence[str], steps: int) -> None:
    async def run() -> None:
        turns = SizedTurns(2)
        reads = Reads(turns)
        tasks = {name: reads.start(name, 2) for name in ("first", "second", "third")}
        for _ in range(steps):
            await asyncio.sleep(0)
        for name in cancelled:
            tasks[name].cancel()
        begun = await reads.settle()
        left = [name for name in tasks if name not in cancelled]
        # The first one of those that are left goes on, and no other.
        assert [name for name in begun if name in left] == left[:1]
        await reads.finish()
        assert [tasks[name].cancelled() for name in tasks] == [name in cancelled for name in tasks]
        again = Reads(turns)
        again.start("whole", 2)
        assert await again.settle() == ["whole"]
        await again.finish()
        # Nothing remains of the caller. The errors of cancelled tasks are in cycles.
        del tasks, reads, again
        gc.collect()
        assert not turns._lines

    asyncio.run(run())


class Peer:
    """The context of a call from an address."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.has_ended = False

    def peer(self) -> str:
        # In gRPC, this ends the process.
        assert not self.has_ended, "the context of a call that has ended was used"
        return f"ipv4:{self._address}:50000"


class Rounds:
    """Counts the requests that are sent at a time, in place of the executor that sends them."""

    def __init__(self) -> None:
        self.in_flight = self.most = 0

    async def round(self, requests: list[Request], *_: object, **__: object) -> list[Reply]:
        self.in_flight += len(requests)
        self.most = max(self.most, self.in_flight)
        await asyncio.sleep(0)
        self.in_flight -= len(requests)
        return []


@pytest.mark.parametrize(("shards", "maximum"), [(4, 160), (5, 125), (40, 120), (300, 300)])
@pytest.mark.parametrize("callers", [1, 2])
def test_all_calls_of_a_caller_together_send_few_requests_in_large_rounds(
    shards: int, maximum: int, callers: int
) -> None:
    servers: Any = SimpleNamespace(topology=SimpleNamespace(server=str))
    rounds: Any = Rounds()

    async def call(executor: CoalescingExecutor, address: str) -> None:
        context = Peer(address)
        CallLimits(FairLimit(1_000, "calls"), RequestLimits()).take_place(context)
        # A round of several calls can begin after the call that began the round has ended.
        context.has_ended = True
        # Requests of one round to several servers are not coalesced, so a round of four is sent separately, too.
        await executor.round([Request(shard, command=("PING",)) for shard in range(shards)])

    async def run() -> None:
        executor = CoalescingExecutor(servers, "", 1.0, turns=SizedTurns(limits.CALLER_ROUND_REQUESTS))
        executor.uncoalesced = rounds
        await asyncio.gather(*(call(executor, f"10.0.0.{n % callers}") for n in range(40 * callers)))

    asyncio.run(run())

    # Rounds with few requests need no turn.
    assert rounds.most == maximum * callers


class ServedNamespaces:
    """Namespaces whose queues are empty."""

    def __init__(self, shards: int) -> None:
        self.group_turns = SizedTurns(limits.CALLER_DEQUEUE_GROUPS)
        self._shards = shards

    def count_shards(self, _: object) -> int:
        return self._shards


@pytest.mark.parametrize(("shards", "groups"), [(1, 8), (63, 8), (64, 4), (256, 1), (2_000, 1)])
def test_all_batches_of_a_caller_together_read_few_groups_at_a_time_and_none_while_a_client_does_not_read(
    monkeypatch: pytest.MonkeyPatch, shards: int, groups: int
) -> None:
    reading, most, written = 0, 0, 0
    namespaces: Any = ServedNamespaces(shards)

    class Empty:
        async def run(self, _: object) -> bool:
            nonlocal reading, most
            reading += 1
            most = max(most, reading)
            await asyncio.sleep(0)
            reading -= 1
            return False

    async def resolve(*_: object) -> tuple[Any, str]:
        return Empty(), "q"

    def to_dequeue(*_: object) -> Any:
        return SimpleNamespace(may_have_messages=lambda: None)

    monkeypatch.setattr(dequeue_batch, "resolve_queue", resolve)
    monkeypatch.setattr(dequeue_batch, "to_dequeue", to_dequeue)
    requests = [{"queue": f"q{n}", "request_id": f"slot-{n}:1", "first_attempt": True} for n in range(100)]

    async def call(write: Any) -> None:
        CallLimits(FairLimit(100, "calls"), RequestLimits()).take_place(Peer("10.0.0.1"))
        await dequeue_batch.DequeueBatch(namespaces, write).answer(DequeueBatchRequest(requests=requests))

    async def write(_: object) -> None:
        nonlocal written
        written += 1

    async def write_to_nobody(_: object) -> None:
        await asyncio.Event().wait()

    async def run() -> None:
        unread = [asyncio.create_task(call(write_to_nobody)) for _ in range(3)]
        await asyncio.gather(*(call(write) for _ in range(5)))
        for task in unread:
            task.cancel()
        await asyncio.gather(*unread, return_exceptions=True)

    asyncio.run(run())

    assert (most, written) == (groups, 500)
