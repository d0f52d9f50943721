"""What the processes of a worker have done, counted in their supervisor."""

import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Final

from tickwheel.histogram import Histogram
from tickwheel.worker.notes import Ran, Recurred

# Upper bounds, in seconds.
SECONDS: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    1_800.0,
)
Histograms = defaultdict[tuple[str, str], Histogram]


def _histograms() -> Histograms:
    return defaultdict(lambda: Histogram(SECONDS))


@dataclass
class Stats:
    """Counts since the supervisor started. Safe to call from any thread."""

    tasks: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Tasks by queue, task and outcome: completed, failed, rejected."""
    occurrences: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Occurrences by schedule and fate: fired, skipped, missed, unknown."""
    run_times: Histograms = field(default_factory=_histograms)
    """How long tasks ran, by queue and task."""
    waits: Histograms = field(default_factory=_histograms)
    """How long after they were due they began."""
    processes: int = 0
    restarts: int = 0
    kills: int = 0
    renewals: int = 0
    lost_leases: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ran(self, note: Ran) -> None:
        with self._lock:
            for task in note.tasks:
                name = note.queue, task.task
                self.tasks[*name, task.outcome] += 1
                self.run_times[name].add(task.seconds)
                self.waits[name].add(max(task.wait_s, 0.0))

    def recurred(self, note: Recurred) -> None:
        with self._lock:
            self.occurrences[note.schedule, note.fate] += 1

    def renewed(self, still_ours: bool) -> None:
        with self._lock:
            if still_ours:
                self.renewals += 1
            else:
                self.lost_leases += 1

    def started(self, again: bool) -> None:
        """``again``: in place of one that has ended."""
        with self._lock:
            self.processes += 1
            self.restarts += again

    def ended(self) -> None:
        with self._lock:
            self.processes -= 1

    def killed(self) -> None:
        with self._lock:
            self.kills += 1
