"""Pauses a process that is not a child of the test."""

import os
import signal
from pathlib import Path

from tests.support.wait_until import eventually


def pause(pid: int) -> None:
    """Pause a process with SIGSTOP, and wait until all its threads have stopped: a thread can be in a call."""
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: _states(pid) <= set("TZX"), f"process {pid} has stopped")


def _states(pid: int) -> set[str]:
    stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return {stat.rpartition(")")[2].split()[0] for stat in stats}
