"""The counts of a worker: tasks, occurrences, leases and processes. The supervisor counts for all its processes."""

import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Final

from tickwheel.tasks.signature import UNKNOWN as UNKNOWN
from tickwheel.telemetry.histogram import SECONDS, Histogram
from tickwheel.worker.ipc import BatchFinished, OccurrenceHandled

_SECONDS: Final = (*SECONDS, 300.0, 1_800.0)
Histograms = defaultdict[tuple[str, str], Histogram]


def _histograms() -> Histograms:
    return defaultdict(lambda: Histogram(_SECONDS))


@dataclass
class Stats:
    """Counts since the supervisor started, and the present number of processes. Thread-safe."""

    tasks: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Tasks by queue, task and outcome: completed, failed, rejected."""
    occurrences: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Occurrences by schedule and outcome: fired, skipped, missed, unknown."""
    run_times: Histograms = field(default_factory=_histograms)
    """Durations of tasks in seconds, by queue and task."""
    waits: Histograms = field(default_factory=_histograms)
    """Seconds from the due time of a task until the start of its first attempt, by queue and task."""
    processes: int = 0
    restarts: int = 0
    kills: int = 0
    renewals: int = 0
    lost_leases: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def record_batch(self, report: BatchFinished) -> None:
        with self._lock:
            for task in report.tasks:
                name = report.queue, task.task
                self.tasks[*name, task.outcome] += 1
                self.run_times[name].add(task.seconds)
                if task.wait_s is not None:
                    self.waits[name].add(max(task.wait_s, 0.0))

    def record_occurrence(self, report: OccurrenceHandled) -> None:
        with self._lock:
            self.occurrences[report.schedule, report.outcome] += 1

    def record_renewal(self, succeeded: bool) -> None:
        with self._lock:
            self.renewals += succeeded
            self.lost_leases += not succeeded

    def record_start(self, is_restart: bool) -> None:
        """Count a start. ``is_restart`` means that the process replaces one that has ended."""
        with self._lock:
            self.processes += 1
            self.restarts += is_restart

    def record_exit(self) -> None:
        with self._lock:
            self.processes -= 1

    def record_kill(self) -> None:
        with self._lock:
            self.kills += 1
