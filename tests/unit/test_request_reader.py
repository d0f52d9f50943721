"""Large requests: one is parsed at a time, in a thread if it has many fields. A caller has a few turns to
process them. A small request that waits takes little memory.
"""

import asyncio
import os
import threading
from collections import Counter
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import pytest

from bench.measurements.large_requests import memory_mb
from tests.support.wait_until import eventually_in_task
from tickwheel import InvalidArgument, LimitExceeded, limits
from tickwheel.rpc.methods import METHODS, Method
from tickwheel.rpc.request_form import RequestForm
from tickwheel.service import request_reader
from tickwheel.service.authorization import UNKNOWN_CALLER
from tickwheel.service.call_limits import CallLimits, RequestLimits
from tickwheel.service.fair_limit import FairLimit
from tickwheel.service.method_table import METHOD_TABLE, one_shard
from tickwheel.service.request_reader import QueueName, RequestReader, take_quota
from tickwheel.v1.message_pb2 import NewMessage
from tickwheel.v1.message_service_pb2 import DequeueBatchRequest, EnqueueBatchRequest

pytestmark = pytest.mark.unit

# What hundreds of requests may take while their calls go on.
MEMORY_MB = 25
METHOD = METHODS["EnqueueBatch"]
SMALL = EnqueueBatchRequest(namespace="n", queue="jobs").SerializeToString()
LARGE = EnqueueBatchRequest(
    namespace="n", queue="jobs", messages=[NewMessage(payload=bytes(2 * limits.UNCOUNTED_REQUEST_BYTES))]
).SerializeToString()


class Call:
    """A call from an address. Its request has arrived completely."""

    def __init__(self, request: bytes, address: str = "10.0.0.1") -> None:
        self._request, self._address = request, address

    async def read(self) -> bytes:
        return self._request

    def peer(self) -> str:
        return f"ipv4:{self._address}:50000"


@pytest.fixture
def call_limits() -> CallLimits:
    return CallLimits(FairLimit(100, "calls"), RequestLimits())


def reader(
    call_limits: CallLimits, request: bytes, address: str = "10.0.0.1", method: Method = METHOD
) -> RequestReader:
    return RequestReader(method, RequestForm(method.request), call_limits, Call(request, address))


def test_between_the_parsing_of_two_large_requests_the_event_loop_reads_requests_of_other_calls(
    call_limits: CallLimits,
) -> None:
    parsed: list[str] = []

    async def read(name: str, request: bytes) -> None:
        with reader(call_limits, request) as requests:
            await requests.read_single()
            # `read_single` returns in the turn of the event loop in which it parses the request.
            parsed.append(name)

    async def read_small(large: asyncio.Future[list[None]]) -> None:
        while not large.done():
            await read("small", SMALL)
            await asyncio.sleep(0)

    async def run() -> None:
        await read_small(asyncio.gather(*(read("large", LARGE) for _ in range(5))))

    asyncio.run(run())

    assert parsed.count("large") == 5
    # Each large request follows a small one.
    assert parsed[0] == "small"
    assert all(pair != ("large", "large") for pair in pairwise(parsed))


def test_a_request_with_many_fields_is_parsed_in_a_thread(
    call_limits: CallLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = {f"key-{n}": "v" * 40 for n in range(16)}
    many = EnqueueBatchRequest(namespace="n", messages=[NewMessage(metadata=pairs)] * 1_000).SerializeToString()
    threads: list[str] = []
    monkeypatch.setattr(RequestForm, "check_fields", lambda *_: threads.append(threading.current_thread().name))

    async def read(request: bytes) -> int:
        with reader(call_limits, request) as requests:
            return len((await requests.read_single()).messages)

    assert asyncio.run(read(many)) == 1_000
    assert threads == ["tickwheel-parser_0"]
    assert asyncio.run(read(LARGE)) == 1
    assert len(threads) == 1


def test_callers_take_turns_to_have_their_large_requests_parsed(call_limits: CallLimits) -> None:
    parsed: list[str] = []

    async def read(address: str) -> None:
        with reader(call_limits, LARGE, address) as requests:
            await requests.read_single()
            parsed.append(address)

    async def run() -> None:
        many = [read("10.0.0.1") for _ in range(20)]
        await asyncio.gather(*many, read("10.0.0.2"))

    asyncio.run(run())
    assert len(parsed) == 21
    assert parsed.index("10.0.0.2") <= 2


def test_a_request_of_a_stream_that_arrives_after_the_end_of_its_call_holds_nothing(call_limits: CallLimits) -> None:
    requests = reader(call_limits, LARGE)

    async def read() -> object:
        return await anext(requests)

    async def take_turn() -> None:
        await requests.take_turn(1)

    async def run() -> None:
        with requests:
            pass
        for late in (read, take_turn):
            with pytest.raises(asyncio.CancelledError):
                await asyncio.create_task(late())
        assert not requests._held_bytes
        # All bytes and all turns are free.
        with reader(call_limits, LARGE) as another:
            for _ in range(limits.LARGE_REQUESTS + 1):
                await anext(another)
                await another.take_turn(1_000)

    asyncio.run(run())
    assert call_limits.requests.bytes._held == {}


def test_an_invalid_name_of_a_stream_is_refused_before_it_is_kept() -> None:
    long = "a" * limits.REQUEST_BYTES
    assert QueueName.of(EnqueueBatchRequest(queue="jobs")) == QueueName("", "jobs")
    for request in (EnqueueBatchRequest(namespace=long), EnqueueBatchRequest(queue=long)):
        with pytest.raises(InvalidArgument, match="name must have 1 to 64"):
            QueueName.of(request)


def test_a_caller_has_few_items_processed_at_a_time_and_other_callers_have_their_own(
    call_limits: CallLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TURN_S", 60.0)
    begun: Counter[str] = Counter()

    async def process(address: str, items: int, end: asyncio.Event) -> None:
        with reader(call_limits, b"", address) as requests:
            await requests.read_single()
            await requests.take_turn(items)
            begun[f"{items} of {address}"] += 1
            await end.wait()

    async def run() -> None:
        end, ended = asyncio.Event(), asyncio.Event()
        ended.set()
        busy = [asyncio.create_task(process("10.0.0.1", limits.CALLER_ITEMS // 2, end)) for _ in range(5)]
        name = f"{limits.CALLER_ITEMS // 2} of 10.0.0.1"
        await eventually_in_task(lambda: begun[name] == 2, "as many requests begin as the limit allows")
        # Requests with few items need no turn, and each caller has turns of its own.
        await asyncio.wait_for(process("10.0.0.1", limits.UNCOUNTED_ITEMS, ended), 20)
        await asyncio.wait_for(process("10.0.0.2", 1_000, ended), 20)
        assert begun[name] == 2
        busy[0].cancel()
        await eventually_in_task(lambda: begun[name] == 3, "the next request begins")
        end.set()
        await asyncio.gather(*busy, return_exceptions=True)
        assert begun[name] == 5

    asyncio.run(run())


def test_a_caller_has_a_few_turns_to_process_large_requests_and_other_callers_have_their_own(
    call_limits: CallLimits,
) -> None:
    begun: Counter[str] = Counter()

    async def process(address: str, end: asyncio.Semaphore) -> None:
        with reader(call_limits, LARGE, address) as requests:
            await requests.read_single()
            await requests.take_turn(1)
            begun[address] += 1
            await end.acquire()

    async def run() -> None:
        end = asyncio.Semaphore(0)
        busy = [asyncio.create_task(process("10.0.0.1", end)) for _ in range(limits.LARGE_REQUESTS + 2)]
        other = asyncio.create_task(process("10.0.0.2", asyncio.Semaphore(1)))
        await asyncio.wait_for(other, 20)
        assert begun["10.0.0.2"] == 1
        await eventually_in_task(lambda: begun["10.0.0.1"] == limits.LARGE_REQUESTS, "a caller has its turns")

        end.release()
        await eventually_in_task(lambda: begun["10.0.0.1"] == limits.LARGE_REQUESTS + 1, "the next one has its turn")

        for _ in busy:
            end.release()
        await asyncio.gather(*busy)
        assert begun["10.0.0.1"] == len(busy)

    asyncio.run(run())


# Each message takes two bytes.
EMPTY_MESSAGES = EnqueueBatchRequest(messages=[NewMessage()] * limits.BATCH_ITEMS).SerializeToString()
# A known and an unknown field in turns: the parser keeps each of the unknown fields apart.
IN_TURNS = b"\x0a\x02tw\xf8\x01\x01"
REQUESTS = {"items": EMPTY_MESSAGES, "fields": IN_TURNS * 9_000 + EMPTY_MESSAGES[:40]}


@pytest.mark.parametrize("is_stream", [False, True], ids=["call", "stream"])
@pytest.mark.parametrize("name", REQUESTS)
def test_a_small_request_that_waits_for_its_turn_takes_little_memory(
    monkeypatch: pytest.MonkeyPatch, name: str, is_stream: bool
) -> None:
    monkeypatch.setattr(limits, "TURN_S", 60.0)
    calls, row, raw = 1_000, METHOD_TABLE[METHOD.name], REQUESTS[name]
    call_limits = CallLimits(FairLimit(calls, "calls", min_share=calls), RequestLimits())
    items: list[int] = []

    async def process(end: asyncio.Event) -> None:
        with reader(call_limits, raw) as requests:
            if is_stream:
                request = await anext(take_quota(requests, UNKNOWN_CALLER.quota, row, one_shard))
            else:
                request = await requests.read_single()
                count = row.count_items(request)
                del request
                request = await requests.take_turn(count)
            items.append(row.count_items(request))
            await end.wait()

    async def run() -> float:
        end, before = asyncio.Event(), memory_mb(os.getpid(), "VmRSS")
        first = asyncio.create_task(process(end))
        await eventually_in_task(lambda: items, "the first request has its turn")
        line = call_limits.requests.item_turns._lines["the address 10.0.0.1", 0]
        others = [asyncio.create_task(process(end)) for _ in range(calls - 1)]
        waiting = calls - max(limits.CALLER_ITEMS // items[0], 1)
        await eventually_in_task(lambda: len(line._waiting) == waiting, "the others wait")
        memory = memory_mb(os.getpid(), "VmRSS") - before
        end.set()
        await asyncio.gather(first, *others)
        return memory

    assert asyncio.run(run()) < MEMORY_MB
    # Every request is complete.
    assert items == [raw.count(b"\x1a\x00")] * calls


@pytest.mark.parametrize("count", [130, 9_000])
def test_a_request_keeps_no_fields_that_are_unknown_or_occur_twice(count: int) -> None:
    calls = 300 if count == 9_000 else 5_000
    call_limits = CallLimits(FairLimit(calls, "calls", min_share=calls), RequestLimits())

    async def run() -> float:
        before = memory_mb(os.getpid(), "VmRSS")
        with ExitStack() as stack:
            for _ in range(calls):
                await stack.enter_context(reader(call_limits, IN_TURNS * count)).read_single()
            return memory_mb(os.getpid(), "VmRSS") - before

    assert asyncio.run(run()) < MEMORY_MB


def test_a_batch_of_dequeues_counts_as_large_until_its_client_has_read_the_responses(call_limits: CallLimits) -> None:
    method = METHODS["DequeueBatch"]
    raw = DequeueBatchRequest(requests=[{"queue": "q", "where": {"a": "b"}}] * 100).SerializeToString()
    assert len(raw) < limits.UNCOUNTED_REQUEST_BYTES
    held = call_limits.requests.bytes

    # As many requests as take the half that a caller may have.
    count = limits.REQUESTS_BYTES // 2 // (16 * len(raw))

    async def run() -> None:
        with ExitStack() as stack:
            for _ in range(count):
                requests = stack.enter_context(reader(call_limits, raw, method=method))
                await requests.read_single()
                # The responses of none of these calls are read, and no call waits for another.
                await asyncio.wait_for(requests.take_turn(1), 20)
            another = stack.enter_context(reader(call_limits, raw, method=method))
            with pytest.raises(LimitExceeded, match="bytes of large requests in flight"):
                await another.read_single()
            assert held.total == count * 16 * len(raw)
        assert held.total == 0

    call_limits = CallLimits(FairLimit(10_000, "calls", min_share=10_000), call_limits.requests)
    asyncio.run(run())


def test_the_event_loop_accepts_calls_of_others_between_two_large_batches_of_a_caller(call_limits: CallLimits) -> None:
    async def run() -> int:
        first, second = reader(call_limits, SMALL), reader(call_limits, SMALL)
        with second:
            with first:
                await first.read_single()
                await first.take_turn(limits.CALLER_ITEMS)
                await second.read_single()
                waiting = asyncio.create_task(second.take_turn(limits.CALLER_ITEMS))
                await asyncio.sleep(0)
            rounds = 0
            while not waiting.done():
                await asyncio.sleep(0)
                rounds += 1
            return rounds

    assert asyncio.run(run()) >= 6


@pytest.mark.parametrize(("name", "full"), [("EnqueueStream", {"messages": [{}]}), ("DequeueStream", {"credit": 1})])
def test_a_caller_has_one_empty_request_of_its_streams_processed_at_a_time(
    call_limits: CallLimits, monkeypatch: pytest.MonkeyPatch, name: str, full: dict[str, Any]
) -> None:
    monkeypatch.setattr(request_reader, "_EMPTY_REQUEST_S", 60.0)
    monkeypatch.setattr(limits, "TURN_S", 60.0)
    row, method = METHOD_TABLE[name], METHODS[name]

    async def read(request: bytes, address: str) -> None:
        with reader(call_limits, request, address, method) as requests:
            await anext(take_quota(requests, UNKNOWN_CALLER.quota, row, one_shard))

    async def run() -> None:
        empty = [asyncio.create_task(read(b"", "10.0.0.1")) for _ in range(3)]
        lines = call_limits.requests.item_turns._lines
        await eventually_in_task(
            lambda: ("the address 10.0.0.1", 0) in lines and len(lines["the address 10.0.0.1", 0]._waiting) == 2,
            "they wait",
        )
        # Other requests, and those of other callers, go on.
        await asyncio.wait_for(read(method.request(**full).SerializeToString(), "10.0.0.1"), 20)
        monkeypatch.setattr(request_reader, "_EMPTY_REQUEST_S", 0.0)
        await asyncio.wait_for(read(b"", "10.0.0.2"), 20)
        assert not any(task.done() for task in empty)
        for task in empty:
            task.cancel()
        await asyncio.gather(*empty, return_exceptions=True)
        await asyncio.wait_for(read(b"", "10.0.0.1"), 20)

    asyncio.run(run())
