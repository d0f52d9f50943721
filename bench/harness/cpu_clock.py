"""The CPU time of another process."""

import time


def process_cpu_us(pid: int) -> float:
    """Return the CPU time that all threads of the process have used, as the kernel counts it."""
    # The CPU clock of another process, numbered as by clock_getcpuclockid(3) on Linux.
    return time.clock_gettime_ns((~pid << 3) | 2) / 1e3
