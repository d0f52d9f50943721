"""What the gRPC service does in a second with one process, and how soon a parked dequeuer has what became ready.

The client is a process of its own beside it, which takes a core: with two cores there is one for the service and Redis.
"""

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from statistics import quantiles

import grpc.aio

from bench.echo_server import PATH
from bench.figures import Figure, Scale
from bench.life import BATCH, PAYLOAD
from bench.server import BenchServer
from tickwheel import Tickwheel, aio
from tickwheel.remote.methods import METHODS
from tickwheel.v1 import message_pb2 as messages
from tickwheel.v1 import message_service_pb2 as calls

IN_FLIGHT = 32
PARKED, QUEUES = 1_000, 50
_SERVE = ("-m", "tickwheel", "serve", "--listen", "127.0.0.1:0", "--url")


def service_rates(scale: Scale) -> list[Figure]:
    """Calls in a closed loop of 32, in turns with the same calls of a server that only echoes them."""
    count, batches = scale.size(20_000, 320), scale.size(1_000, 8)
    single: list[float] = []
    share: list[float] = []
    batched: list[float] = []
    echoes: list[float] = []
    with BenchServer() as server, _process(*_SERVE, server.url) as target, _process("-m", "bench.echo_server") as echo:
        with Tickwheel(server.url, drive=False) as tickwheel:
            tickwheel.create_queue("rates")
        for run in range(scale.runs() + 1):
            enqueued = asyncio.run(_enqueued(target, count))
            echoed = asyncio.run(_echoed(echo, count))
            batch = asyncio.run(_batched(target, batches))
            if run:
                single.append(enqueued)
                echoes.append(echoed)
                share.append(100 * enqueued / echoed)
                batched.append(batch)
    about = {"calls": count, "in_flight": IN_FLIGHT, "processes": 1, "aof": "off"}
    return [
        Figure(
            "service_enqueue", "service: unary enqueue, 32 in flight", "/s", single, 4_000, at_least=True, details=about
        ),
        Figure(
            "service_enqueue_share",
            "the same, of a bare echo",
            "%",
            share,
            55,
            at_least=True,
            details=about | {"echo_per_s": [round(each) for each in echoes]},
        ),
        Figure(
            "service_batch",
            f"service: enqueue in batches of {BATCH}",
            "messages/s",
            batched,
            25_000,
            at_least=True,
            details={"batches": batches, "in_flight": 4, "processes": 1, "aof": "off"},
        ),
    ]


def service_wakes(scale: Scale) -> list[Figure]:
    """From an enqueue until a parked dequeuer has the message, over the service; and what those who wait cost Redis."""
    rounds, parked, idle_s = scale.size(500, 10), scale.size(PARKED, 20), 10 if not scale.quick else 1
    p50: list[float] = []
    p99: list[float] = []
    idle: list[float] = []
    with BenchServer() as server, _process(*_SERVE, server.url) as target:
        for _ in range(scale.runs()):
            late = sorted(asyncio.run(_woken(target, rounds)))
            p50.append(late[len(late) // 2])
            p99.append(quantiles(late, n=100)[98])
            idle.append(asyncio.run(_parked(target, server, parked, idle_s)))
    about = {"messages": rounds, "aof": "off"}
    return [
        Figure("service_wake_p50", "service: enqueue until a parked dequeuer has it, p50", "ms", p50, 3, details=about),
        Figure("service_wake_p99", "the same, p99", "ms", p99, 15, details=about),
        Figure(
            "service_parked",
            f"service: Redis, {PARKED:,} parked dequeuers on {QUEUES} empty queues",
            "% of a core",
            idle,
            1,
            details={"parked": parked, "seconds": idle_s},
        ),
    ]


@contextmanager
def _process(*command: str) -> Iterator[str]:
    """A program that serves, and its host and port."""
    with subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            assert process.stdout is not None
            found = next(filter(None, (re.match(r"serving grpc://(\S+)", line) for line in process.stdout)))
            yield found[1]
        finally:
            process.terminate()


async def _loop(count: int, in_flight: int, call: Callable[[int], Awaitable[object]]) -> float:
    """Calls a second, so many at a time."""
    numbers = iter(range(count))

    async def one_after_the_other() -> None:
        for n in numbers:
            await call(n)

    began = time.perf_counter()
    await asyncio.gather(*(one_after_the_other() for _ in range(in_flight)))
    return count / (time.perf_counter() - began)


async def _enqueued(target: str, count: int) -> float:
    method = METHODS["Enqueue"]
    async with grpc.aio.insecure_channel(target) as channel:
        send = channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
        prefix = f"{time.time_ns():x}"

        async def call(n: int) -> None:
            message = messages.NewMessage(id=f"{prefix}-{n}", payload=PAYLOAD)
            await send(calls.EnqueueRequest(namespace="tw", queue="rates", message=message))

        return await _loop(count, IN_FLIGHT, call)


async def _echoed(target: str, count: int) -> float:
    request = calls.EnqueueRequest(
        namespace="tw", queue="rates", message=messages.NewMessage(id="0" * 20, payload=PAYLOAD)
    )
    method = METHODS["Enqueue"]
    async with grpc.aio.insecure_channel(target) as channel:
        send = channel.unary_unary(PATH, method.request.SerializeToString, method.request.FromString)

        async def call(_: int) -> None:
            await send(request)

        return await _loop(count, IN_FLIGHT, call)


async def _batched(target: str, batches: int) -> float:
    method = METHODS["EnqueueBatch"]
    async with grpc.aio.insecure_channel(target) as channel:
        send = channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
        prefix = f"{time.time_ns():x}"

        async def call(n: int) -> None:
            batch = [messages.NewMessage(id=f"{prefix}-{n}-{m}", payload=PAYLOAD) for m in range(BATCH)]
            await send(calls.EnqueueBatchRequest(namespace="tw", queue="rates", messages=batch))

        return BATCH * await _loop(batches, 4, call)


async def _woken(target: str, rounds: int) -> list[float]:
    """Milliseconds of each."""
    found: list[float] = []
    url = f"grpc://{target}"
    async with aio.Tickwheel(url) as consumer, aio.Tickwheel(url) as producer:
        waiting, sending = await consumer.create_queue("wakes"), producer.queue("wakes")
        for n in range(rounds):
            parked = asyncio.create_task(waiting.dequeue(wait=timedelta(seconds=20)))
            # Long enough to be asleep.
            await asyncio.sleep(0.01)
            began = time.perf_counter()
            await sending.enqueue(PAYLOAD, id=f"{time.time_ns():x}-{n}")
            [message] = await parked
            found.append(1_000 * (time.perf_counter() - began))
            await message.complete()
    return found


async def _parked(target: str, server: BenchServer, count: int, seconds: float) -> float:
    """How much of a core Redis takes while all wait, in percent."""
    async with aio.Tickwheel(f"grpc://{target}") as tickwheel:
        queues = [await tickwheel.create_queue(f"empty-{n}") for n in range(QUEUES)]
        wait = timedelta(seconds=seconds + 60)
        waiting = [asyncio.create_task(queues[n % QUEUES].dequeue(wait=wait)) for n in range(count)]
        await asyncio.sleep(5 if seconds > 1 else 0.5)
        before = server.process_cpu_us()
        await asyncio.sleep(seconds)
        used = server.process_cpu_us() - before
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    return used / seconds / 1e6 * 100
