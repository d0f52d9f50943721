"""A worker process, as its supervisor knows it."""

import subprocess
from dataclasses import dataclass

from tickwheel.worker.lease_renewer import LeaseRenewer
from tickwheel.worker.shared_state import SharedState


@dataclass(slots=True)
class SupervisedProcess:
    """A process, with what the supervisor shares with it, and why and for which tasks it was killed."""

    popen: subprocess.Popen[bytes]
    input: int
    shared_state: SharedState
    renewer: LeaseRenewer
    started: float
    kill_reason: str = ""
    # Tasks, each as its batch index, message index and start time: the task for which the process was killed, and the
    # tasks that were over their time limits at the last check.
    culprit: tuple[int, int, float] | None = None
    overdue: frozenset[tuple[int, int, float]] = frozenset()

    @property
    def has_started(self) -> bool:
        """Whether the process has loaded the app, has run its start hooks, and can take messages."""
        return self.renewer.is_ready
