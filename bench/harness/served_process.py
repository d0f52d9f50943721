"""A program that serves, started as a process of its own for as long as it is measured."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

SERVE: Final = ("-m", "tickwheel", "serve", "--listen", "127.0.0.1:0", "--url")


@dataclass(frozen=True, slots=True)
class ServedProcess:
    """Where it serves, and its process."""

    target: str
    pid: int

    def cpu_us(self) -> float:
        """CPU that it has used, all of its threads, as the kernel tells it."""
        # The CPU clock of another process, as clock_getcpuclockid(3) makes its number on Linux.
        return time.clock_gettime_ns((~self.pid << 3) | 2) / 1e3


@contextmanager
def serve_process(*command: str) -> Iterator[ServedProcess]:
    """A command of this Python that says where it serves, as `tickwheel serve` does; told to end at the end."""
    with subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            assert process.stdout is not None
            serving_line = next(filter(None, (re.match(r"serving grpc://(\S+)", line) for line in process.stdout)))
            yield ServedProcess(serving_line[1], process.pid)
        finally:
            process.terminate()
