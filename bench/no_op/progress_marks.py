"""The body of every no-op task: it counts the tasks, and records the time and CPU times at two of the counts.

The first record comes after the warm-up, so the start of the worker and its first connections are not measured.
"""

import json
import os
import time
from itertools import count
from pathlib import Path

# The tasks up to the first record are the warm-up.
WARM = int(os.environ.get("NO_OP_WARM", "0"))
LAST = WARM + int(os.environ.get("NO_OP_COUNT", "0"))
_PATH = Path(os.environ.get("NO_OP_MARKS", "/dev/null"))
_ran = count(1)


def no_op() -> None:
    """The body of a task."""
    ran = next(_ran)
    if ran in (WARM, LAST):
        with _PATH.open("a") as file:
            file.write(json.dumps([time.perf_counter(), time.process_time(), _cpu_of(os.getppid())]) + "\n")


def _cpu_of(pid: int) -> float:
    """Return the CPU time of another process in seconds, from its clock on Linux: clock_getcpuclockid(3)."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0
