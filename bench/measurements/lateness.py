"""The lateness of messages at a worker, with the defaults of the embedded server.

Four processes share the machine: the producer, the worker, the event process and the server.
"""

import multiprocessing
import random
import shutil
import tempfile
import time
from array import array
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench.harness.measurement import Measurement, Scale
from bench.measurements.message_life import BATCH, PAYLOAD
from tickwheel import NewMessage, Tickwheel

RATE = 2_000
TICK_S = 0.01
SHORTEST_S, LONGEST_S = 0.5, 20.0
QUEUE = "lateness"
# Bins of the histogram in the results, in ms. The last bin has no upper bound.
BIN_MS, BINS = 0.5, 100


def lateness(scale: Scale) -> list[Measurement]:
    """Measure the time from the due time until the worker has the message, by the clock of the machine."""
    seconds, longest_s = (1.0, 1.0) if scale.quick else (30.0, LONGEST_S)
    runs = [_run(seconds, longest_s) for _ in range(scale.runs())]
    early = [float(sum(late_ms < 0 for late_ms in samples)) for samples in runs]
    bins = [0] * (BINS + 1)
    for samples in runs:
        for late_ms in samples:
            bins[min(BINS, max(0, int(late_ms / BIN_MS)))] += 1
    details: dict[str, Any] = {
        "messages": [len(samples) for samples in runs],
        "per_second": RATE,
        "seconds": seconds,
        "delays_s": [SHORTEST_S, longest_s],
        "durability": "fsync",
        "max_ms": [round(samples[-1], 3) for samples in runs],
        "p90_ms": [round(_percentile(samples, 0.9), 3) for samples in runs],
        "p999_ms": [round(_percentile(samples, 0.999), 3) for samples in runs],
    }
    load = f"at {RATE:,} delayed messages a second for {seconds:.0f} s on the embedded server"
    label = f"time from the due time of a message until a worker has it, {load}"
    return [
        Measurement(
            "lateness_p50",
            f"{label}: median",
            "ms",
            [_percentile(samples, 0.5) for samples in runs],
            3,
            details=details | {"bin_ms": BIN_MS, "histogram": bins},
        ),
        Measurement(
            "lateness_p99", f"{label}: 99th percentile", "ms", [_percentile(samples, 0.99) for samples in runs], 20
        ),
        Measurement(
            "lateness_early",
            f"messages that a worker received before their due time, {load}",
            "messages",
            early,
            0,
            value=max(early),
        ),
    ]


def _run(seconds: float, longest_s: float) -> list[float]:
    """Run the load once. Return the lateness of every message in ms, sorted."""
    folder = Path(tempfile.mkdtemp(prefix="tickwheel-bench-"))
    count = round(seconds * RATE)
    spawn = multiprocessing.get_context("spawn")
    own_end, worker_end = spawn.Pipe()
    try:
        with Tickwheel(data_dir=folder) as tickwheel:
            queue = tickwheel.create_queue(QUEUE)
            worker = spawn.Process(target=_work, args=(str(folder), count, worker_end))
            worker.start()
            # Closed here, so that this process notices the end of the worker in any case.
            worker_end.close()
            try:
                own_end.recv()
                _produce(queue, count, longest_s)
                late = array("d")
                late.frombytes(own_end.recv_bytes())
            finally:
                worker.join(30)
                worker.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return sorted(late)


def _produce(queue: Any, count: int, longest_s: float) -> None:
    """Enqueue a batch at every tick. A slow batch does not shift the times of later batches."""
    per_tick = round(RATE * TICK_S)
    dice = random.Random(1)
    began = time.perf_counter()
    for n in range(count // per_tick):
        time.sleep(max(0.0, began + n * TICK_S - time.perf_counter()))
        delays = [
            timedelta(milliseconds=dice.randint(round(SHORTEST_S * 1000), round(longest_s * 1000)))
            for _ in range(per_tick)
        ]
        queue.enqueue_many([NewMessage(PAYLOAD, delay=delay) for delay in delays])


def _work(data_dir: str, count: int, answer: Connection) -> None:
    """Run as a worker process, and send the lateness of all messages."""
    late = array("d")
    with Tickwheel(data_dir=data_dir, drive=False) as tickwheel:
        queue = tickwheel.queue(QUEUE)
        queue.dequeue()
        answer.send("ready")
        while len(late) < count:
            messages = queue.dequeue(BATCH, wait=timedelta(seconds=30), worker="bench")
            now_ms = time.time_ns() / 1e6
            if not messages:
                break
            late.extend(now_ms - message._due_ms for message in messages)
            queue.complete_many(messages)
    answer.send_bytes(late.tobytes())


def _percentile(ordered: list[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
