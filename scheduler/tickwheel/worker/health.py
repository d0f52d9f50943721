"""Whether a worker works: a process has started, and the loops of the supervisor and of the consumers come round."""

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
    @property
    def has_started(self) -> bool: ...


class WorkerHealth:
    """Finds why a worker takes no messages. The supervisor calls `on_round` and `on_end`, and any thread calls
    `find_problem`.
    """

    def __init__(self, processes: Sequence[Process | None]) -> None:
        """``processes`` has the processes that run now. The supervisor changes it."""
        self._processes = processes
        self._came_round_at = time.monotonic()
        self._last_end = ""

    def on_round(self) -> None:
        """Record that the loop of the supervisor has come round."""
        self._came_round_at = time.monotonic()

    def on_end(self, text: str) -> None:
        """Record the end of a process, as the log describes it (`describe_exit`)."""
        self._last_end = text

    def find_problem(self) -> str:
        """Return which loop hangs, or why no process can take messages; an empty text if neither is the case.

        A process that runs a task, or that waits until the server has accepted outcomes, does not hang. A process that
        still starts is no problem while another one has started.
        """
        now = time.monotonic()
        if now - self._came_round_at > SUPERVISOR_S:
            return f"the supervisor has not come round for {now - self._came_round_at:.0f} s"
        for process in self._processes:
            if process is not None and process.shared_state.hangs(now - CONSUMER_S):
                return f"process {process.popen.pid} has neither taken messages nor run a task for {CONSUMER_S:.0f} s"
        if any(process is not None and process.has_started for process in self._processes):
            return ""
        if not self._last_end:
            return "no process has started yet: the first one loads the app or runs its start hooks"
        return f"no process takes messages: {self._last_end}, and a new one has not started yet"
