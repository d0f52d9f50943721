"""Whether the loops of a worker come round: that of the supervisor, and those of the consumers of its processes."""

import subprocess
import time
from collections.abc import Sequence
from typing import Final, Protocol

from tickwheel.worker.shared_state import SharedState

# The supervisor comes round ten times a second.
SUPERVISOR_S: Final = 60.0
# Longer than a call that is repeated until its timeout, also if each of several servers takes this time. An idle
# consumer comes round once a second.
CONSUMER_S: Final = 300.0


class Process(Protocol):
    """A worker process, as its supervisor knows it."""

    @property
    def popen(self) -> subprocess.Popen[bytes]: ...
    @property
    def shared_state(self) -> SharedState: ...


class WorkerHealth:
    """Finds the loops that hang. The supervisor calls `on_round`, and any thread calls `find_problem`."""

    def __init__(self, processes: Sequence[Process | None]) -> None:
        """``processes`` has the processes that run now. The supervisor changes it."""
        self._processes = processes
        self._came_round_at = time.monotonic()

    def on_round(self) -> None:
        """Record that the loop of the supervisor has come round."""
        self._came_round_at = time.monotonic()

    def find_problem(self) -> str:
        """Return which loop hangs; an empty text if none does.

        A process that runs a task, or that waits until the server has accepted outcomes, does not hang. A process that
        still starts is not checked.
        """
        now = time.monotonic()
        if now - self._came_round_at > SUPERVISOR_S:
            return f"the supervisor has not come round for {now - self._came_round_at:.0f} s"
        for process in self._processes:
            if process is not None and process.shared_state.hangs(now - CONSUMER_S):
                return f"process {process.popen.pid} has neither taken messages nor run a task for {CONSUMER_S:.0f} s"
        return ""
