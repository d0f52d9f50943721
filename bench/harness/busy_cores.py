"""Cores that never sleep while something is measured, as on a server that has work.

Where cores sleep between calls, waking them is counted as the server's CPU: a PING takes five times as much, and what
is sent in batches costs more or less by the mood of the kernel.
"""

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def keep_cores_busy() -> Iterator[None]:
    """A process of the lowest priority on each core that has no rest."""
    spawn = multiprocessing.get_context("spawn")
    spinners = [spawn.Process(target=_spin, args=(os.getpid(),), daemon=True) for _ in range(os.cpu_count() or 1)]
    for spinner in spinners:
        spinner.start()
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.join()


def _spin(parent: int) -> None:
    os.nice(19)
    while os.getppid() == parent:
        for _ in range(1_000_000):
            pass
