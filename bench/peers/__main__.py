"""`python -m bench.peers`: install the peers in a temporary folder, run the same work on each, write the results."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from bench.harness.bench_server import BenchServer
from bench.harness.calibration import zadd_us
from bench.harness.checkout import Origins
from bench.harness.report import replace_between
from bench.harness.source_files import source_files
from bench.harness.staleness import PRODUCT

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "peers.json"
DOCUMENTS = [HERE.parents[1] / name for name in ("docs/comparison.md", "README.md")]
# The paths with the code that is measured, and with the code that measures.
SOURCES = (*PRODUCT, "bench/peers", *sorted(source_files("bench.peers.__main__", "bench.peers.tickwheel_peer")))
RUNS, JOBS, DELAYED, LATE = 3, 20_000, 30_000, 5_000
# Pinned, because a result is valid for one version.
VERSIONS = {"Tickwheel": "", "BullMQ": "6.7.0", "Celery": "5.7.0"}
IOREDIS = "ioredis@6.0.0"
COLUMNS = {
    "enqueue_per_s": "enqueued messages/s",
    "drain_per_s": "completed messages/s",
    "enqueue_zadd": "server CPU time for an enqueue",
    "drain_zadd": "server CPU time for a delivery",
    "bytes_per_delayed": "server memory for a delayed message, bytes",
    "late_p50_ms": "lateness: median",
    "late_p99_ms": "lateness: 99th percentile",
    "early": "early messages",
}
UNITS = {"enqueue_zadd": " ZADD", "drain_zadd": " ZADD", "late_p50_ms": " ms", "late_p99_ms": " ms"}
Run = Callable[[str, BenchServer, int], dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="run with small sizes, as a test that takes seconds; write no results"
    )
    quick = parser.parse_args().quick
    origins = Origins()
    with tempfile.TemporaryDirectory(prefix="tickwheel-peers-") as folder:
        peers = install(Path(folder))
        results = {}
        for name, run in peers.items():
            print(f"{name} ...", flush=True)
            runs = [measure(run, quick) for _ in range(1 if quick else RUNS)]
            results[name] = {key: [run[key] for run in runs] for key in COLUMNS}
    print(table(results, VERSIONS))
    if not quick:
        about = origins.record() | {"versions": VERSIONS, "runs": RUNS}
        RESULTS.write_text(json.dumps(about | {"results": results}, indent=1) + "\n")
        write_comparison()


def install(folder: Path) -> dict[str, Run]:
    """Install each peer in the folder, and return the functions that run them."""
    (folder / "package.json").write_text("{}")
    npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", f"bullmq@{VERSIONS['BullMQ']}", IOREDIS]
    subprocess.run(npm, cwd=folder, check=True)
    subprocess.run([sys.executable, "-m", "venv", folder / "celery"], check=True)
    python = folder / "celery" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", f"celery[redis]=={VERSIONS['Celery']}"], check=True)
    commands: dict[str, list[str | Path]] = {
        "Tickwheel": [sys.executable, HERE / "tickwheel_peer.py"],
        "BullMQ": ["node", HERE / "bullmq.mjs"],
        "Celery": [python, HERE / "celery_peer.py"],
    }

    def program(command: list[str | Path]) -> Run:
        def run(phase: str, server: BenchServer, count: int) -> dict[str, Any]:
            done = subprocess.run(
                [*command, phase, server.url.removeprefix("unix://"), str(count)],
                check=True,
                stdout=subprocess.PIPE,
                env=os.environ | {"PEERS_FOLDER": str(folder)},
            )
            answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
            return answer

        return run

    return {name: program(command) for name, command in commands.items()}


def measure(run: Run, quick: bool) -> dict[str, float]:
    """Run all phases once, on new servers. Only enqueue and drain share a server."""
    jobs, delayed, late = (1_000, 1_000, 500) if quick else (JOBS, DELAYED, LATE)
    with BenchServer() as server:
        zadd = zadd_us(server)
        before = server.cpu_us()
        enqueue_s = run("enqueue", server, jobs)["seconds"]
        between_phases = server.cpu_us()
        drain_s = run("drain", server, jobs)["seconds"]
        after = server.cpu_us()
    with BenchServer() as server:
        empty = server.used_memory()
        run("delay", server, delayed)
        used_bytes = server.used_memory() - empty
    with BenchServer() as server:
        late_ms = sorted(run("late", server, late)["late_ms"])
    return {
        "enqueue_per_s": jobs / enqueue_s,
        "drain_per_s": jobs / drain_s,
        "enqueue_zadd": (between_phases - before) / jobs / zadd,
        "drain_zadd": (after - between_phases) / jobs / zadd,
        "bytes_per_delayed": used_bytes / delayed,
        "late_p50_ms": late_ms[len(late_ms) // 2],
        "late_p99_ms": late_ms[int(len(late_ms) * 0.99)],
        "early": sum(ms < 0 for ms in late_ms),
    }


def write_comparison() -> None:
    """Write the results into the pages."""
    for path in DOCUMENTS:
        replace_between(path, comparison(json.loads(RESULTS.read_text())))


def comparison(stored: dict[str, Any]) -> str:
    """Return the part of the pages with the table, and with a sentence about the code that was measured."""
    text = f"Measured on {stored['measured'][:10]}: the values are medians of {stored['runs']} runs"
    if not stored.get("commit"):
        # True of the last results without a commit. `make peers` replaces them.
        text += ", with an older version of Tickwheel. For the lateness, Tickwheel's messages had empty payloads"
    return f"{table(stored['results'], stored['versions'])}\n{textwrap.fill(text + '.', 120)}\n"


def table(results: dict[str, dict[str, list[float]]], versions: dict[str, str]) -> str:
    """Return a Markdown table of the medians, with a row for each peer."""
    lines = ["| | " + " | ".join(COLUMNS.values()) + " |", "|---|" + "---|" * len(COLUMNS)]
    for name, samples in results.items():
        cells = [f"{median(samples[key]):,.{1 if 0 < median(samples[key]) < 100 else 0}f}" for key in COLUMNS]
        cells_with_units = [cell + UNITS.get(key, "") for key, cell in zip(COLUMNS, cells, strict=True)]
        lines.append(f"| {name} {versions[name]}".rstrip() + " | " + " | ".join(cells_with_units) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
