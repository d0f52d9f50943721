"""The cost of a life, depending on the number of messages that are due on later days."""

import time
from contextlib import ExitStack
from datetime import timedelta
from statistics import median

from bench.harness.bench_server import BenchServer
from bench.harness.manual_time import ManualTimeShard
from bench.harness.measurement import Measurement, Scale
from bench.measurements.message_life import BATCH, HISTORY, PAYLOAD, cost_of_lives
from tickwheel import NewMessage

FILL = 1_000
# Due times are spread, and later than the end of the measurement.
FIRST_DAY, LAST_DAY = 2, 30
QUEUE = "later"


def backlog(scale: Scale) -> list[Measurement]:
    """Measure three servers with few, more and many delayed messages in turns, so that noise affects all of them."""
    sizes = [scale.size(full, quick) for full, quick in ((30_000, 100), (300_000, 1_000), (3_000_000, 5_000))]
    lives, runs = scale.size(20_000, 200), scale.runs()
    costs: dict[int, list[float]] = {size: [] for size in sizes}
    began = time.perf_counter()
    with ExitStack() as stack:
        shards: dict[int, ManualTimeShard] = {}
        for size in sizes:
            shards[size] = stack.enter_context(
                ManualTimeShard(stack.enter_context(BenchServer()), history=HISTORY),
            )
            _fill(shards[size], size)
        filled_s = time.perf_counter() - began
        for _ in range(scale.warmup_runs):
            for shard in shards.values():
                cost_of_lives(shard, 100)
        for _ in range(runs):
            for size, shard in shards.items():
                costs[size].append(cost_of_lives(shard, lives).total_us)
        memory = {size: shard.server.used_memory() for size, shard in shards.items()}
    few, _, many = sizes
    return [
        Measurement(
            "backlog",
            f"server CPU time for a life while {many:,} other messages are delayed, relative to {few:,}, with"
            f" {BATCH} messages in each call",
            "×",
            [high / low for high, low in zip(costs[many], costs[few], strict=True)],
            1.15,
            details={
                "lives": lives,
                "batch": BATCH,
                "life_us": {str(size): [round(us, 3) for us in samples] for size, samples in costs.items()},
                "median_life_us": {str(size): round(median(samples), 3) for size, samples in costs.items()},
                "used_memory_bytes": {str(size): used for size, used in memory.items()},
                "filled_once_in_s": round(filled_s),
            },
        )
    ]


def _fill(shard: ManualTimeShard, size: int) -> None:
    queue = shard.tickwheel.create_queue(QUEUE)
    spread = timedelta(days=LAST_DAY - FIRST_DAY) / size
    # The messages are not enqueued in the order of their due times, because real messages have different delays.
    step = 7_919
    for first in range(0, size, FILL):
        count = min(FILL, size - first)
        later = (timedelta(days=FIRST_DAY) + spread * ((first + n) * step % size) for n in range(count))
        queue.enqueue_many([NewMessage(PAYLOAD, delay=delay) for delay in later])
        shard.settle(FILL)
    shard.file()
