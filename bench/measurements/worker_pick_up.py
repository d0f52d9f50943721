"""The time until an idle worker with three queues runs the task of a new message, on Redis and over the service."""

import random
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles

from bench.harness.bench_server import BenchServer
from bench.harness.measurement import Measurement, Scale
from bench.measurements.worker_overhead import run_worker
from bench.measurements.worker_shapes import OVER
from services.serving_program import SERVE, ServingProgram

_WORKER = ("-m", "tickwheel", "worker", "bench.no_op.three_queues_app:app", "--drive", "never")
_POLL_S = 0.002
# The pause between two tasks is random, so that a task comes at any time of the worker's waits, which last a second.
PAUSE_S = (0.02, 0.12)


def worker_pick_up(scale: Scale) -> list[Measurement]:
    """Measure the pick-up of single messages of three queues, in random order."""
    count = scale.size(300, 6)
    measurements = []
    for over, connected in OVER.items():
        label = f"time from an enqueue until an idle worker with three queues, {connected}, runs the task"
        runs = [_latencies(over, count) for _ in range(scale.runs(3))]
        measurements += percentile_rows("worker_pick_up", over, label, runs)
    return measurements


def percentile_rows(name: str, over: str, label: str, runs: Sequence[Sequence[float]]) -> list[Measurement]:
    """Return the median and the 99th percentile of latencies in milliseconds. Each run is a sample of both rows."""
    p50, p99 = [median(run) for run in runs], [quantiles(run, n=100)[98] for run in runs]
    about = {"tasks": len(runs[0]), "queues": 3, "aof": "off"}
    return [
        Measurement(f"{name}_p50_{over}", f"{label}: median", "ms", p50, None, details=about),
        Measurement(f"{name}_p99_{over}", f"{label}: 99th percentile", "ms", p99, 15, details=about),
    ]


def _latencies(over: str, count: int) -> list[float]:
    """Return the latency of each task in milliseconds. Each is enqueued when the worker is idle."""
    from bench.no_op import three_queues_app

    chance = random.Random(1)
    with BenchServer() as server, tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        marks = Path(folder) / "marks"
        marks.touch()
        settings = {"NO_OP_MARKS": str(marks)}
        if over == "grpc":
            settings["TICKWHEEL_URL"] = stack.enter_context(ServingProgram(server.folder, *SERVE, server.url)).url
        three_queues_app.app.move(url=server.url, drive=False)
        stack.callback(three_queues_app.app.close)
        stack.enter_context(run_worker(_WORKER, server, settings))
        latencies: list[float] = []
        for n in range(-len(three_queues_app.QUEUES), count):
            # The first task of each queue is the warm-up.
            queue = chance.choice(three_queues_app.QUEUES) if n >= 0 else three_queues_app.QUEUES[n]
            began = time.perf_counter()
            getattr(three_queues_app, queue).now(n)
            ran = _wait_for_mark(marks, n + len(three_queues_app.QUEUES))
            if n >= 0:
                latencies.append(1_000 * (ran - began))
            time.sleep(chance.uniform(*PAUSE_S))
    return latencies


def _wait_for_mark(marks: Path, index: int) -> float:
    """Return the time at which the worker ran a task."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        lines = marks.read_text().splitlines()
        if len(lines) > index:
            return float(lines[index])
        time.sleep(_POLL_S)
    raise RuntimeError("the worker did not run a task within a minute")
