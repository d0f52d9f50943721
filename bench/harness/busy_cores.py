"""Keeps all cores awake during a measurement, like on a busy server.

If a core sleeps between two calls, the kernel counts the wake-up as CPU time of the server. A PING then takes five
times as much CPU time, and the CPU time of larger calls varies.
"""

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def keep_cores_busy() -> Iterator[None]:
    """Run a busy process of the lowest priority for each core."""
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
