"""The process group of a worker process: the process and all programs that its tasks have started."""

import os
import signal
import subprocess
from contextlib import suppress


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and all programs that it has started: the process leads its own process group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
