"""The cost of each durability: the time of an enqueue, and the rate of enqueues, each on a suitable server."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median, quantiles

from bench.harness.measurement import Measurement, Scale
from bench.measurements.message_life import BATCH, PAYLOAD
from services.replica_set import ReplicaSet
from tickwheel import NewMessage, Queue, Tickwheel

# Durability of the client, description of the server, its settings, its number of replicas.
KINDS: dict[str, tuple[str, str, dict[str, str], int]] = {
    "memory": ("memory", "a server without an append-only file", {"appendonly": "no"}, 0),
    "memory_aof": ("memory", "a server with appendfsync everysec", {"appendfsync": "everysec"}, 0),
    "fsync": ("fsync", "a server with appendfsync always", {"appendfsync": "always"}, 0),
    "replica_1": ("replica:1", "a server with one replica", {"appendonly": "no"}, 1),
}


def durability(scale: Scale) -> list[Measurement]:
    """Measure calls with one message and calls with 100, by one client that waits for every answer."""
    alone, batched = scale.size(1_000, 50), scale.size(10_000, 200)
    medians: dict[str, list[float]] = {name: [] for name in KINDS}
    worst: dict[str, list[float]] = {name: [] for name in KINDS}
    rates: dict[str, list[float]] = {name: [] for name in KINDS}
    # Most measurements keep the cores busy (`bench/harness/busy_cores.py`). Here, after each disk write, the server
    # would wait until a busy process has used up its time slice.
    with ExitStack() as stack:
        queues = {}
        for name, (level, _, settings, replicas) in KINDS.items():
            url = stack.enter_context(_server(settings, replicas))
            tickwheel = stack.enter_context(Tickwheel(url, durability=level, drive=False))
            queues[name] = tickwheel.create_queue("costs")
        # In turns, so that other work of the machine affects all servers. The first turn is the warm-up.
        for turn in range(scale.runs() + scale.warmup_runs):
            for name, queue in queues.items():
                taken = [_enqueue(queue) for _ in range(alone)]
                began = time.perf_counter()
                for _ in range(0, batched, BATCH):
                    queue.enqueue_many([NewMessage(PAYLOAD) for _ in range(BATCH)])
                if turn >= scale.warmup_runs:
                    rates[name].append(batched / (time.perf_counter() - began))
                    medians[name].append(median(taken))
                    worst[name].append(quantiles(taken, n=100)[98])
    # No goal, because these values depend mainly on the disk.
    return [
        Measurement(
            f"durability_{name}",
            f"time of an enqueue with the durability {level}, on {server}: median",
            "µs",
            medians[name],
            None,
            details={
                "p99_us": [round(us) for us in worst[name]],
                "enqueued_per_second_in_batches_of_100": [round(rate) for rate in rates[name]],
            },
        )
        for name, (level, server, _, _) in KINDS.items()
    ]


def _enqueue(queue: Queue) -> float:
    """Return the time of one enqueue in microseconds."""
    began = time.perf_counter()
    queue.enqueue(PAYLOAD)
    return (time.perf_counter() - began) * 1e6


@contextmanager
def _server(settings: dict[str, str], replicas: int) -> Iterator[str]:
    folder = Path(tempfile.mkdtemp(prefix="tickwheel-bench-"))
    try:
        with ReplicaSet(folder, replicas=replicas, settings=settings) as servers:
            yield servers.url
    finally:
        shutil.rmtree(folder, ignore_errors=True)
