"""The overhead of a worker for a task that does nothing, compared with Celery and dramatiq on the same server.

All tasks are enqueued before the worker starts. The time of a task is the time between two marks
(`bench.no_op.progress_marks`), divided by the number of tasks between them.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median

from bench.harness.bench_server import BenchServer
from bench.harness.measurement import Measurement, Scale
from tickwheel import Tickwheel

WARM, QUEUE = 500, "no-op"
# As in `bench.no_op.tickwheel_app`.
BATCH = 10
_CELERY = ("-m", "celery", "-A", "bench.no_op.celery_app", "worker", "-c", "1", "-l", "ERROR")
_CELERY_LEAN = ("--without-gossip", "--without-mingle", "--without-heartbeat")
_DRAMATIQ = ("-m", "dramatiq", "bench.no_op.dramatiq_app", "-p", "1", "-t")
_TICKWHEEL = ("-m", "tickwheel", "worker", "bench.no_op.tickwheel_app:app", "--drive", "never")


@dataclass(frozen=True)
class Peer:
    """A worker with its settings."""

    command: tuple[str, ...]
    enqueue: Callable[[BenchServer, int], None]
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """Microseconds for each task: elapsed time, CPU time of the worker process, and CPU time of its supervisor."""

    wall_us: float
    process_us: float
    supervisor_us: float

    @property
    def per_s(self) -> float:
        return 1e6 / self.wall_us

    @property
    def cpu_us(self) -> float:
        return self.process_us + self.supervisor_us


def enqueue(server: BenchServer, task: str, count: int) -> None:
    """Enqueue messages of one of Tickwheel's tasks."""
    from bench.no_op import tickwheel_app

    tickwheel_app.app.move(url=server.url, drive=False)
    send = getattr(tickwheel_app, task)
    with Tickwheel(server.url, drive=False):
        target = tickwheel_app.app.declared(QUEUE)
        target.enqueue_many([send.message((n,), {}) for n in range(count)])
    tickwheel_app.app.close()


def _by_module(module: str) -> Callable[[BenchServer, int], None]:
    # In a separate process, because peers patch modules when they are imported.
    def enqueued(server: BenchServer, count: int) -> None:
        code = f"from bench.no_op.{module} import enqueue; enqueue({count})"
        subprocess.run([sys.executable, "-c", code], env=environment(server, {}), check=True)

    return enqueued


def _celery(*options: str, late: bool, prefetch: int) -> Peer:
    settings = {"NO_OP_LATE": str(int(late)), "NO_OP_PREFETCH": str(prefetch)}
    return Peer((*_CELERY, *_CELERY_LEAN, *options), _by_module("celery_app"), settings)


TICKWHEEL = Peer(_TICKWHEEL, lambda server, count: enqueue(server, "sync_no_op", count))
WITHOUT_LOG = Peer((*_TICKWHEEL, "--log-tasks", "off"), TICKWHEEL.enqueue)
# The best sensible settings of each peer, and its defaults. The best result of a peer counts. "late" means that the
# peer acknowledges a task after the run, like Tickwheel's worker; "early" means before the run.
PEERS = {
    "Celery": {
        "solo, late, prefetch 10": _celery("-P", "solo", late=True, prefetch=10),
        "solo, early, prefetch 4": _celery("-P", "solo", late=False, prefetch=4),
        "prefork, late, prefetch 10": _celery("-P", "prefork", late=True, prefetch=10),
        "prefork, early, prefetch 4": _celery("-P", "prefork", late=False, prefetch=4),
    },
    "dramatiq": {
        "8 threads": Peer((*_DRAMATIQ, "8"), _by_module("dramatiq_app")),
        "1 thread": Peer((*_DRAMATIQ, "1"), _by_module("dramatiq_app")),
    },
}


def worker_overhead(scale: Scale) -> list[Measurement]:
    """Measure Tickwheel and all peers in turns, and compare Tickwheel with the best settings of each peer."""
    count = scale.size(20_000, 200)
    ours: list[Run] = []
    silent: list[Run] = []
    theirs: dict[str, dict[str, list[Run]]] = {
        peer: {name: [] for name in islice(settings, scale.size(len(settings), 1))} for peer, settings in PEERS.items()
    }
    for _ in range(scale.runs()):
        ours.append(measure(TICKWHEEL, count))
        silent.append(measure(WITHOUT_LOG, count))
        for peer, by_settings in theirs.items():
            for name, runs in by_settings.items():
                runs.append(measure(PEERS[peer][name], max(count // 4, 1)))
    about = {"tasks": count, "processes": 1, "batch": BATCH, "aof": "off"}
    shares = [100 * (our.wall_us / other.wall_us - 1) for our, other in zip(ours, silent, strict=True)]
    task = f"a task that does nothing, on one worker process with batches of {BATCH}"
    return [
        Measurement(
            "worker_overhead",
            f"time for {task}",
            "µs",
            [run.wall_us for run in ours],
            150,
            details=about,
        ),
        Measurement(
            "worker_cpu", f"CPU time of the worker process for {task}", "µs", [run.process_us for run in ours], None
        ),
        Measurement(
            "worker_supervisor_cpu",
            f"CPU time of the worker's supervisor for {task}",
            "µs",
            [run.supervisor_us for run in ours],
            None,
        ),
        Measurement(
            "worker_log",
            f"additional time for {task}, because of the two lines of its log (`--log-tasks off` has none)",
            "%",
            shares,
            None,
            details={"without_log_us": [round(run.wall_us, 1) for run in silent], **about},
        ),
        *(_compare(peer, by_settings, ours) for peer, by_settings in theirs.items()),
    ]


def _compare(peer: str, theirs: Mapping[str, list[Run]], ours: list[Run]) -> Measurement:
    """Compare run by run with the settings that have the best median. The details contain all settings."""
    best = max(theirs, key=lambda name: median(run.per_s for run in theirs[name]))
    ratios = [our.per_s / their.per_s for our, their in zip(ours, theirs[best], strict=True)]
    details = {
        name: {"tasks_per_s": [round(run.per_s) for run in runs], "cpu_us": [round(run.cpu_us) for run in runs]}
        for name, runs in theirs.items()
    }
    label = (
        f"rate of tasks that do nothing on one worker process with batches of {BATCH}, relative to {peer} with its best"
        " settings"
    )
    return Measurement(
        f"worker_against_{peer.lower()}", label, "×", ratios, 1, at_least=True, details={"best": best, **details}
    )


def measure(peer: Peer, count: int) -> Run:
    """Run a worker once: the warm-up, then ``count`` tasks."""
    with BenchServer() as server, tempfile.TemporaryDirectory() as folder:
        marks = Path(folder) / "marks"
        marks.touch()
        # Some more tasks, so that the queue does not become empty during the measurement.
        peer.enqueue(server, WARM + count + 50)
        counts = {"NO_OP_WARM": str(WARM), "NO_OP_COUNT": str(count), "NO_OP_MARKS": str(marks)}
        settings = {**peer.settings, **counts}
        with run_worker(peer.command, server, settings) as worker:
            ends = time.monotonic() + 120
            while len(mark_lines := marks.read_text().splitlines()) < 2:
                if worker.poll() is not None or time.monotonic() > ends:
                    raise RuntimeError(f"{' '.join(peer.command)} did not run its tasks")
                time.sleep(0.05)
    first, last = (json.loads(line) for line in mark_lines)
    return Run(*((1e6 * (after - before) / count) for before, after in zip(first, last, strict=True)))


@contextmanager
def run_worker(
    command: Sequence[str], server: BenchServer, settings: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker during the block, and kill its process group if it does not end."""
    with subprocess.Popen(
        [sys.executable, *command],
        env=environment(server, settings),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as worker:
        try:
            yield worker
        finally:
            worker.terminate()
            try:
                worker.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(worker.pid, signal.SIGKILL)


def environment(server: BenchServer, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program that uses the server."""
    return {**os.environ, "TICKWHEEL_URL": server.url, "NO_OP_REDIS": server.url, **settings}
