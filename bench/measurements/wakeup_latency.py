"""The time until a waiting dequeue of the service has a new message, and the CPU use of Redis for waiting calls."""

import asyncio
import time
from datetime import timedelta
from statistics import median, quantiles

from bench.harness.bench_server import BenchServer
from bench.harness.busy_cores import keep_cores_busy
from bench.harness.measurement import Measurement, Scale
from bench.measurements.message_life import PAYLOAD
from services.serving_program import SERVE, ServingProgram
from tickwheel import aio

PARKED, QUEUES = 1_000, 50


def service_wakes(scale: Scale) -> list[Measurement]:
    """Measure the time from an enqueue until a waiting dequeue has the message, with awake and with sleeping cores.

    Both clients are in one process, and there is one message at a time. Then measure the CPU use of Redis while many
    dequeues wait for empty queues.
    """
    rounds, parked, idle_s = scale.size(500, 10), scale.size(PARKED, 20), 10 if not scale.quick else 1
    p50: list[float] = []
    p99: list[float] = []
    asleep: list[float] = []
    idle: list[float] = []
    with BenchServer() as server, ServingProgram(server.folder, *SERVE, server.url) as service:
        for _ in range(scale.runs()):
            with keep_cores_busy():
                late = asyncio.run(_wake_latencies(service.target, rounds))
            p50.append(median(late))
            p99.append(quantiles(late, n=100)[98])
            asleep.append(median(asyncio.run(_wake_latencies(service.target, rounds))))
            idle.append(asyncio.run(_parked_cpu_percent(service.target, server, parked, idle_s)))
    about = {"messages": rounds, "aof": "off"}
    label = "time from an enqueue over the service until a waiting dequeue has the message"
    return [
        Measurement("service_wake_p50", f"{label}: median", "ms", p50, 3, details=about),
        Measurement("service_wake_p99", f"{label}: 99th percentile", "ms", p99, 15, details=about),
        Measurement(
            "service_wake_asleep", f"{label}, if all cores were asleep: median", "ms", asleep, None, details=about
        ),
        Measurement(
            "service_parked",
            f"CPU use of Redis while {PARKED:,} dequeues of the service wait for {QUEUES} empty queues",
            "% of a core",
            idle,
            1,
            details={"parked": parked, "seconds": idle_s},
        ),
    ]


async def _wake_latencies(target: str, rounds: int) -> list[float]:
    """Return the latency of each message in milliseconds."""
    latencies: list[float] = []
    url = f"grpc://{target}"
    async with aio.Tickwheel(url) as consumer, aio.Tickwheel(url) as producer:
        waiting, sending = await consumer.create_queue("wakes"), producer.queue("wakes")
        for n in range(rounds):
            parked = asyncio.create_task(_dequeue_one(waiting))
            # Long enough for the cores to fall asleep.
            await asyncio.sleep(0.01)
            began = time.perf_counter()
            await sending.enqueue(PAYLOAD, id=f"{time.time_ns():x}-{n}")
            message, when = await parked
            latencies.append(1_000 * (when - began))
            await message.complete()
    return latencies


async def _dequeue_one(queue: aio.Queue) -> tuple[aio.Message, float]:
    """Return the message and the time of its arrival, which can be before the enqueue returns."""
    [message] = await queue.dequeue(wait=timedelta(seconds=20))
    return message, time.perf_counter()


async def _parked_cpu_percent(target: str, server: BenchServer, count: int, seconds: float) -> float:
    """Return the CPU use of Redis while all dequeues wait, in percent of a core."""
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
        # When this call is answered, the cancelled calls have ended too, so the event loop can close.
        await tickwheel.queues()
    return used / seconds / 1e6 * 100
