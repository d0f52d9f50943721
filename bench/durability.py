"""What each durability costs: how long an enqueue takes and how many go in a second, on one server of each kind."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

from bench.figures import Figure, Scale
from bench.life import BATCH, PAYLOAD
from services.replica_set import ReplicaSet
from tickwheel import NewMessage, Tickwheel

# Durability of the client, settings of the server, replicas.
KINDS: dict[str, tuple[str, dict[str, str], int]] = {
    "memory, no AOF": ("memory", {"appendonly": "no"}, 0),
    "memory, AOF everysec": ("memory", {"appendfsync": "everysec"}, 0),
    "fsync": ("fsync", {"appendfsync": "always"}, 0),
    "replica:1": ("replica:1", {"appendonly": "no"}, 1),
}


def durability(scale: Scale) -> list[Figure]:
    """One client that waits for every answer: a message a call, and calls of 100."""
    alone, batched = scale.size(3_000, 50), scale.size(30_000, 200)
    singles: dict[str, list[float]] = {}
    worst: dict[str, float] = {}
    rates: dict[str, list[float]] = {}
    for name, (level, settings, replicas) in KINDS.items():
        with _server(settings, replicas) as url, Tickwheel(url, durability=level, drive=False) as tickwheel:
            queue = tickwheel.create_queue("costs")
            queue.enqueue_many([NewMessage(PAYLOAD) for _ in range(BATCH)])
            taken = []
            for _ in range(alone):
                began = time.perf_counter()
                queue.enqueue(PAYLOAD)
                taken.append((time.perf_counter() - began) * 1e6)
            singles[name], worst[name] = taken, quantiles(taken, n=100)[98]
            rates[name] = []
            for _ in range(scale.runs(3)):
                began = time.perf_counter()
                for _ in range(0, batched, BATCH):
                    queue.enqueue_many([NewMessage(PAYLOAD) for _ in range(BATCH)])
                rates[name].append(batched / (time.perf_counter() - began))
    # From disk to disk these differ more than from anything of ours: reported, without a bar.
    return [
        Figure(
            f"durability_{name.split(',')[0].replace(':', '_')}{'_aof' if 'everysec' in name else ''}",
            f"an enqueue under {name}: p50 of its time",
            "µs",
            [median(singles[name])],
            None,
            details={
                "p99_us": round(worst[name]),
                "enqueued_per_second_in_batches_of_100": [round(rate) for rate in rates[name]],
            },
        )
        for name in KINDS
    ]


@contextmanager
def _server(settings: dict[str, str], replicas: int) -> Iterator[str]:
    folder = Path(tempfile.mkdtemp(prefix="tickwheel-bench-"))
    try:
        with ReplicaSet(folder, replicas=replicas, settings=settings) as servers:
            yield servers.url
    finally:
        shutil.rmtree(folder, ignore_errors=True)
