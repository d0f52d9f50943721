"""What the processes of a worker have done, counted in their supervisor."""

import threading
from collections import Counter
from dataclasses import dataclass, field

from tickwheel.worker.notes import Ran, Recurred


@dataclass
class Stats:
    """Counts since the supervisor started. Safe to call from any thread."""

    tasks: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Tasks by queue, task and outcome: completed, failed, rejected."""
    occurrences: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Occurrences by schedule and fate: fired, skipped, missed, unknown."""
    processes: int = 0
    restarts: int = 0
    kills: int = 0
    renewals: int = 0
    lost_leases: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ran(self, note: Ran) -> None:
        with self._lock:
            for task in note.tasks:
                self.tasks[note.queue, task.task, task.outcome] += 1

    def recurred(self, note: Recurred) -> None:
        with self._lock:
            self.occurrences[note.schedule, note.fate] += 1

    def renewed(self, still_ours: bool) -> None:
        with self._lock:
            if still_ours:
                self.renewals += 1
            else:
                self.lost_leases += 1

    def started(self) -> None:
        with self._lock:
            self.processes += 1

    def ended(self) -> None:
        with self._lock:
            self.processes -= 1
            self.restarts += 1

    def killed(self) -> None:
        with self._lock:
            self.kills += 1
