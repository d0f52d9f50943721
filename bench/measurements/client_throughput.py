"""The rates of one client process: messages without a delay in batches, and whole delayed lives."""

import time
from datetime import timedelta
from typing import Any

from bench.harness.bench_server import BenchServer
from bench.harness.measurement import Measurement, Scale
from bench.measurements.message_life import BATCH, PAYLOAD
from tickwheel import NewMessage, Tickwheel

QUEUE = "rates"
DELAY = timedelta(seconds=2)


def client_rates(scale: Scale) -> list[Measurement]:
    """Measure `enqueue_many`, then `dequeue` and `complete_many`, in one thread that waits for every answer."""
    count = scale.size(50_000, 1_000)
    enqueued: list[float] = []
    finished: list[float] = []
    client: dict[str, list[float]] = {"enqueue": [], "dequeue and complete": []}
    with BenchServer() as server, Tickwheel(server.url, drive=False) as tickwheel:
        for run in range(scale.runs() + scale.warmup_runs):
            queue = tickwheel.create_queue(f"{QUEUE}-{run}")
            began, cpu = time.perf_counter(), time.process_time()
            for _ in range(0, count, BATCH):
                queue.enqueue_many([NewMessage(PAYLOAD) for _ in range(BATCH)])
            enqueued.append(count / (time.perf_counter() - began))
            client["enqueue"].append((time.process_time() - cpu) / count * 1e6)
            began, cpu = time.perf_counter(), time.process_time()
            done = 0
            while messages := queue.dequeue(BATCH):
                queue.complete_many(messages)
                done += len(messages)
            finished.append(done / (time.perf_counter() - began))
            client["dequeue and complete"].append((time.process_time() - cpu) / count * 1e6)
            assert done == count, f"{done} of {count} messages were delivered"
    # The slices leave out the first run, which warms the client up.
    details: dict[str, Any] = {
        "messages": count,
        "batch": BATCH,
        "aof": "off",
        "client_cpu_us_per_message": {label: round(min(us[-scale.runs() :]), 2) for label, us in client.items()},
    }
    return [
        Measurement(
            "client_enqueue",
            f"rate at which one client enqueues messages without a delay, {BATCH} in each call",
            "messages/s",
            enqueued[-scale.runs() :],
            50_000,
            at_least=True,
            details=details,
        ),
        Measurement(
            "client_finish",
            f"rate at which one client dequeues and completes messages, {BATCH} in each call",
            "messages/s",
            finished[-scale.runs() :],
            35_000,
            at_least=True,
            details=details,
        ),
    ]


def delayed_lives(scale: Scale) -> list[Measurement]:
    """Measure the rate of delayed lives with one client process and one event process, like in production."""
    count = scale.size(100_000, 1_000)
    delay = DELAY if not scale.quick else timedelta(milliseconds=300)
    rates: list[float] = []
    client_us: list[float] = []
    server_us: list[float] = []
    with BenchServer() as server, Tickwheel(server.url, drive=True) as tickwheel:
        for run in range(scale.runs() + scale.warmup_runs):
            queue = tickwheel.create_queue(f"{QUEUE}-{run}")
            counts = run >= scale.warmup_runs
            lives = count if counts else count // 10
            began, cpu, server_cpu = time.perf_counter(), time.process_time(), server.cpu_us()
            sent = done = 0
            while done < lives:
                if sent < lives:
                    queue.enqueue_many([NewMessage(PAYLOAD, delay=delay) for _ in range(BATCH)])
                    sent += BATCH
                # Complete due messages before enqueueing more. When all are enqueued, wait for messages.
                wait = timedelta(seconds=5) if sent >= lives else None
                while done < lives and (messages := queue.dequeue(BATCH, wait=wait)):
                    queue.complete_many(messages)
                    done += len(messages)
            if counts:
                rates.append(lives / (time.perf_counter() - began))
                client_us.append((time.process_time() - cpu) / lives * 1e6)
                server_us.append((server.cpu_us() - server_cpu) / lives)
    return [
        Measurement(
            "delayed_lives",
            "rate at which one client and one event process take delayed messages from enqueue to complete,"
            f" {BATCH} in each call",
            "messages/s",
            rates,
            10_000,
            at_least=True,
            details={
                "lives": count,
                "batch": BATCH,
                "aof": "off",
                "delay_s": delay.total_seconds(),
                "client_cpu_us_per_life": [round(us, 1) for us in client_us],
                "server_cpu_us_per_life": [round(us, 1) for us in server_us],
                "note": "from the first enqueue to the last complete, with stale lease timers and without retirement",
            },
        )
    ]
