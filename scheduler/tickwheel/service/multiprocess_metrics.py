"""Aggregated metrics for a multi-process service: each process exposes its metrics on a Unix socket, and one endpoint
serves the sum.
"""

import asyncio
import os
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Final

from prometheus_client import Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from tickwheel.runtime.event_loop import run_in_thread
from tickwheel.telemetry.metrics_server import registry_of

_ANSWER_S: Final = 2.0
# The names of a metric and of its sample, and the sample's labels.
_Key = tuple[str, str, tuple[tuple[str, str], ...]]


@asynccontextmanager
async def serve_counters(path: Path, collector: Collector) -> AsyncIterator[None]:
    """Serve this process's metrics on the Unix socket at ``path``. The first line of each answer is the process id."""
    registry = registry_of(collector)
    # One page is made at a time, in a thread: the page of a thousand queues takes a tenth of a second.
    turn = asyncio.Lock()

    async def write_page(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with turn:
                page = await run_in_thread(lambda: generate_latest(registry))
            writer.write(b"%d\n" % os.getpid() + page)
            await writer.drain()
        except ConnectionError:
            # The client closed the connection before the end of the answer.
            pass
        finally:
            writer.close()

    # A killed process leaves its socket behind.
    path.unlink(missing_ok=True)
    async with await asyncio.start_unix_server(write_page, path):
        yield


@dataclass(slots=True)
class _Process:
    """The counters of a process at the last scrape."""

    path: Path
    pid: str = ""
    counters: Counter[_Key] = field(default_factory=Counter)


class MultiprocessCollector(Collector):
    """Collects the sum over all processes. Counts of a process that died stay in the sum, so counters never fall."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._processes = [_Process(path) for path in paths]
        self._dead_totals: Counter[_Key] = Counter()
        self._families: dict[str, Metric] = {}
        self._lock = Lock()

    def collect(self) -> Iterator[Metric]:
        """Yield each metric, summed over the processes."""
        with self._lock:
            sums: Counter[_Key] = Counter()
            for process in self._processes:
                sums.update(self._fetch(process))
                sums.update(process.counters)
            sums.update(self._dead_totals)
            metrics = {name: Metric(name, kind.documentation, kind.type) for name, kind in self._families.items()}
        for (name, sample, labels), value in sums.items():
            metrics[name].add_sample(sample, dict(labels), value)
        yield from metrics.values()

    def _fetch(self, process: _Process) -> Counter[_Key]:
        """Store the counters of the process, and return its gauges.

        If the process is unreachable, keep its last counters and return no gauges.
        """
        gauges: Counter[_Key] = Counter()
        try:
            pid, _, page = _read_page(process.path).partition("\n")
        except OSError:
            return gauges
        if pid != process.pid:
            self._dead_totals.update(process.counters)
        process.pid, process.counters = pid, Counter()
        for metric in text_string_to_metric_families(page):
            self._families.setdefault(metric.name, metric)
            destination = gauges if metric.type == "gauge" else process.counters
            for sample in metric.samples:
                destination[metric.name, sample.name, tuple(sample.labels.items())] = sample.value  # type: ignore[assignment]
        return gauges


def _read_page(path: Path) -> str:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ANSWER_S)
        connection.connect(str(path))
        with connection.makefile("rb") as answer:
            return answer.read().decode()
