"""A process of the service that watches its event loop. After each signal SIGUSR1, the process prints the longest block
of the loop since the last one, in ms: the CPU time of the loop's thread, and the elapsed time.

The elapsed time includes the time for which another thread holds the interpreter's lock, or another process has the
core.

Usage: python -m bench.harness.watched_service URL
"""

import asyncio
import signal
import sys
import time

from tickwheel.client.settings import ClientSettings
from tickwheel.runtime.event_loop import run_in_uvloop
from tickwheel.runtime.gc_freeze import collect_seldom, freeze_gc
from tickwheel.service.server import Server

_PERIOD_S = 0.001


class _LoopWatch:
    """The longest time for which other callbacks occupied the event loop."""

    def __init__(self) -> None:
        self._longest_cpu_s = self._longest_s = 0.0

    async def run(self) -> None:
        while True:
            began_cpu, began = time.thread_time(), time.perf_counter()
            await asyncio.sleep(_PERIOD_S)
            self._longest_cpu_s = max(self._longest_cpu_s, time.thread_time() - began_cpu)
            self._longest_s = max(self._longest_s, time.perf_counter() - began - _PERIOD_S)

    def report(self) -> None:
        print(f"longest block {1_000 * self._longest_cpu_s:.1f} ms, {1_000 * self._longest_s:.1f} ms", flush=True)
        self._longest_cpu_s = self._longest_s = 0.0


async def _serve(url: str) -> None:
    settings = ClientSettings.validate(url, "tw", None, None, None, None)
    watch = _LoopWatch()
    async with Server(settings, "127.0.0.1:0") as server, asyncio.TaskGroup() as tasks:
        tasks.create_task(watch.run())
        # As `tickwheel serve`.
        freeze_gc()
        collect_seldom()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, watch.report)
        print(f"serving grpc://127.0.0.1:{server.port}", flush=True)


if __name__ == "__main__":
    run_in_uvloop(_serve(sys.argv[1]))
