"""The rates of no-op tasks with several worker processes and with concurrent tasks, on Redis and over the service.

The rows have no goal, because the server, the service and the worker processes share two cores.
"""

import time
from contextlib import ExitStack
from itertools import product

from bench.harness.bench_server import BenchServer
from bench.harness.measurement import Measurement, Scale
from bench.measurements.worker_overhead import BATCH, QUEUE, TICKWHEEL, WARM, enqueue, run_worker
from services.serving_program import SERVE, ServingProgram
from tickwheel import Tickwheel

SHAPES = {
    "lane": ("one process", "sync_no_op", ()),
    "processes_2": ("two processes", "sync_no_op", ("--processes", "2")),
    "async_8": ("one process that runs 8 async tasks at a time", "async_no_op", ("--threads", "8")),
}
OVER = {"redis": "connected to Redis", "grpc": "connected to the service"}
_POLL_S = 0.02


def worker_shapes(scale: Scale) -> list[Measurement]:
    """Measure each shape of a worker, on Redis and over one process of the service."""
    count = scale.size(10_000, 200)
    measurements = []
    for over, name in list(product(OVER, SHAPES))[-scale.size(2 * len(SHAPES), 1) :]:
        label, task, options = SHAPES[name]
        rates = [_rate(over, task, options, count) for _ in range(scale.runs(3))]
        what = f"rate of tasks that do nothing on a worker with {label} and batches of {BATCH}, {OVER[over]}"
        measurements.append(
            Measurement(
                f"worker_{name}_{over}",
                what,
                "tasks/s",
                rates,
                None,
                details={"tasks": count, "batch": BATCH, "aof": "off"},
            )
        )
    return measurements


def _rate(over: str, task: str, options: tuple[str, ...], count: int) -> float:
    """Return the tasks per second, from the server's count of completed messages."""
    with BenchServer() as server, ExitStack() as stack:
        enqueue(server, task, WARM + count)
        where = {}
        if over == "grpc":
            where["TICKWHEEL_URL"] = stack.enter_context(ServingProgram(server.folder, *SERVE, server.url)).url
        tickwheel = stack.enter_context(Tickwheel(server.url, drive=False))
        stack.enter_context(run_worker((*TICKWHEEL.command, *options), server, where))
        began, before = _wait_until_completed(tickwheel, WARM)
        ended, after = _wait_until_completed(tickwheel, WARM + count)
    return (after - before) / (ended - began)


def _wait_until_completed(tickwheel: Tickwheel, minimum: int) -> tuple[float, int]:
    """Wait until at least ``minimum`` tasks are completed. Return the time and the number."""
    queue = tickwheel.queue(QUEUE)
    until = time.monotonic() + 120
    while time.monotonic() < until:
        if (completed := queue.counts()["completed"]) >= minimum:
            return time.perf_counter(), completed
        time.sleep(_POLL_S)
    raise RuntimeError(f"the worker did not complete {minimum} tasks in two minutes")
