"""Celery: JSON, one worker with two processes, and ETA for delayed jobs. It runs in a separate Python environment."""

import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from celery import Celery

PHASE, SOCKET, COUNT = sys.argv[1:4] if __name__ == "__main__" else ("", os.environ.get("PEERS_SOCKET", ""), "0")
RATE, TICK_S, DAY_S = 500, 0.01, 86_400
PAYLOAD = "x" * 200
DONE = struct.Struct("dd")
app = Celery("celery_peer", broker=f"redis+socket://{SOCKET}")
app.conf.task_ignore_result = True


@app.task(name="job")  # type: ignore[untyped-decorator]
def job(payload: str, due: float = 0.0) -> None:
    """Record the time of the run, and its lateness."""
    now = time.time()
    with open(os.environ["PEERS_DONE"], "ab", buffering=0) as done:
        done.write(DONE.pack(now, (now - due) * 1_000))


def work(count: int, produce_jobs: object = None) -> list[tuple[float, float]]:
    """Run a worker until ``count`` jobs are done. Return the time and the lateness of each job.

    The function ``produce_jobs`` is called once the worker is ready.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "done"
        path.touch()
        command = [sys.executable, "-m", "celery", "-A", "celery_peer", "worker", "-c", "2", "-l", "ERROR"]
        environment = os.environ | {"PEERS_SOCKET": SOCKET, "PEERS_DONE": str(path)}
        worker = subprocess.Popen(
            command, cwd=Path(__file__).parent, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            if callable(produce_jobs):
                while not app.control.ping(timeout=0.5):
                    pass
                produce_jobs()
            while path.stat().st_size < count * DONE.size:
                time.sleep(0.01)
        finally:
            worker.terminate()
            worker.wait()
        return sorted(DONE.iter_unpack(path.read_bytes()))


def produce(count: int) -> None:
    began, per_tick = time.perf_counter(), round(RATE * TICK_S)
    for n in range(count // per_tick):
        time.sleep(max(0.0, began + n * TICK_S - time.perf_counter()))
        for _ in range(per_tick):
            delay = random.uniform(0.5, 5.0)
            job.apply_async((PAYLOAD, time.time() + delay), countdown=delay)


def main(count: int) -> dict[str, object]:
    began = time.perf_counter()
    match PHASE:
        case "enqueue":
            for _ in range(count):
                job.apply_async((PAYLOAD,))
            return {"seconds": time.perf_counter() - began}
        case "drain":
            done = work(count)
            return {"seconds": done[-1][0] - done[0][0]}
        case "delay":
            for _ in range(count):
                job.apply_async((PAYLOAD,), countdown=3 * DAY_S + random.uniform(0, DAY_S))
            return {}
        case _:
            return {"late_ms": [late for _, late in work(count, lambda: produce(count))]}


if __name__ == "__main__":
    print(json.dumps(main(int(COUNT))))
