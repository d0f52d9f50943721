"""The time of a call of a Celery app that has moved to Tickwheel, on Redis and over the service.

The caller is a program of its own, and receives the result from Celery's result backend, which is on the same server.
"""

import json
import subprocess
import sys
from contextlib import ExitStack

from bench.harness.bench_server import BenchServer
from bench.harness.measurement import Measurement, Scale
from bench.measurements.worker_overhead import environment, run_worker
from bench.measurements.worker_pick_up import PAUSE_S, percentile_rows
from bench.measurements.worker_shapes import OVER
from services.serving_program import SERVE, ServingProgram

_APP = "bench.no_op.migrated_app"
_WORKER = ("-m", "tickwheel", "worker", f"{_APP}:tickwheel", "--drive", "never")


def celery_round_trip(scale: Scale) -> list[Measurement]:
    """Measure single calls to three queues, in random order. Each is made when the worker is idle."""
    count = scale.size(300, 6)
    measurements = []
    for over, connected in OVER.items():
        label = (
            "time from a call of a Celery task that has moved to Tickwheel until the caller has the result, with an"
            f" idle worker with three queues, {connected}"
        )
        runs = [_round_trips(over, count) for _ in range(scale.runs(3))]
        measurements += percentile_rows("celery_round_trip", over, label, runs)
    return measurements


def _round_trips(over: str, count: int) -> list[float]:
    """Return the milliseconds of each call."""
    with BenchServer() as server, ExitStack() as stack:
        settings = {}
        if over == "grpc":
            settings["TICKWHEEL_URL"] = stack.enter_context(ServingProgram(server.folder, *SERVE, server.url)).url
        stack.enter_context(run_worker(_WORKER, server, settings))
        caller = [sys.executable, "-m", _APP, str(count), *map(str, PAUSE_S)]
        called = subprocess.run(caller, env=environment(server, settings), stdout=subprocess.PIPE, check=True)
    return list(json.loads(called.stdout))
